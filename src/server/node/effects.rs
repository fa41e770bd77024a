//! Effects of the state machine on the rest of the server, carried out in order, by one thread at a time, without
//! any lock or shard held.
//!
//! Effects are queued while the state machine is locked, so that they are in causal order. The thread that
//! queued some carries them out afterwards, together with those of others, unless another thread is doing so; a
//! thread that replies to a client waits until its own effects are done, so that the client's next command sees
//! them.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Queue of effects that one thread at a time carries out in order.
pub(super) struct SerialEffectQueue<E> {
    queue: Mutex<EffectQueue<E>>,
    done: Condvar,
}

struct EffectQueue<E> {
    waiting: VecDeque<E>,
    queued: u64,
    done: u64,
    is_run: bool,
}

/// Position in the queue: the number of effects queued so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EffectPosition(u64);

impl<E> Default for SerialEffectQueue<E> {
    fn default() -> Self {
        SerialEffectQueue {
            queue: Mutex::new(EffectQueue {
                waiting: VecDeque::new(),
                queued: 0,
                done: 0,
                is_run: false,
            }),
            done: Condvar::new(),
        }
    }
}

impl<E> SerialEffectQueue<E> {
    /// Queues an effect. Called while the state machine is locked.
    pub(super) fn queue(&self, effect: E) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(effect);
        queue.queued += 1;
    }

    /// Returns the position of the last effect queued.
    pub(super) fn last(&self) -> EffectPosition {
        EffectPosition(self.queue.lock().queued)
    }

    /// Carries out all waiting effects, unless another thread is doing so.
    pub(super) fn run(&self, mut carry_out: impl FnMut(E)) {
        let mut queue = self.queue.lock();
        if queue.is_run {
            return;
        }
        queue.is_run = true;
        while let Some(effect) = queue.waiting.pop_front() {
            parking_lot::MutexGuard::unlocked(&mut queue, || carry_out(effect));
            queue.done += 1;
            self.done.notify_all();
        }
        queue.is_run = false;
    }

    /// Waits until all effects up to a position are done; some thread must have begun to carry them out.
    pub(super) fn wait(&self, place: EffectPosition) {
        let mut queue = self.queue.lock();
        while queue.done < place.0 {
            self.done.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_carried_out_once_and_in_order_whoever_does_it() {
        let (effects, seen) = (SerialEffectQueue::default(), Mutex::new(Vec::new()));
        let order = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let place = {
                            let mut next = order.lock();
                            effects.queue(*next);
                            *next += 1;
                            effects.last()
                        };
                        effects.run(|effect| seen.lock().push(effect));
                        effects.wait(place);
                        assert!(seen.lock().len() as u64 >= place.0);
                    }
                });
            }
        });
        let expected: Vec<i32> = (0..800).collect();
        assert_eq!(*seen.lock(), expected);
    }
}
