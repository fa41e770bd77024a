//! The cost of the shard token: alone, and with other threads at the same shard.
//!
//! Dimensions: access (direct, by message, all or none), shards (1, 10), rivals (0, 1, 3 threads that submit to the
//! same shard without a pause). The engine is one integer, so the protocol itself is measured. A parking_lot mutex is
//! included for comparison.
//!
//! `cargo bench --profile fast --bench ownership`

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::thread;

use basalt_server::shard::ownership::engines::HeldEngines;
use basalt_server::shard::ownership::queued::QueuedMessage;
use basalt_server::shard::ownership::{ShardMessage, ShardSet};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

struct Add {
    shards: Vec<u16>,
}

impl ShardMessage<u64> for Add {
    fn shards(&self) -> &[u16] {
        &self.shards
    }

    fn run(&mut self, hands: &mut HeldEngines<'_, u64>) {
        hands.iter().for_each(|(_, sum)| *sum += 1);
    }

    fn finish(parcel: Box<QueuedMessage<Self>>) {
        drop(black_box(parcel));
    }
}

fn add(shards: &[u16]) -> Box<QueuedMessage<Add>> {
    QueuedMessage::new(Add {
        shards: shards.to_vec(),
    })
}

fn shards(count: usize) -> Arc<ShardSet<u64, Add>> {
    Arc::new(ShardSet::new(vec![0; count]))
}

fn alone(c: &mut Criterion) {
    let mut group = c.benchmark_group("ownership_alone");
    let set = shards(64);
    let all: Vec<u16> = (0..10).collect();
    group.bench_function("take_and_release", |b| {
        b.iter(|| *set.try_take(black_box(7)).expect("free") += 1);
    });
    let mutex = parking_lot::Mutex::new(0_u64);
    group.bench_function("parking_lot_for_comparison", |b| {
        b.iter(|| *black_box(&mutex).lock() += 1)
    });
    group.bench_function("take_and_release_through_hands", |b| {
        b.iter(|| {
            *set.try_take(black_box(7))
                .expect("free")
                .engines()
                .get(7)
                .expect("in hand") += 1
        });
    });
    group.bench_function("take_ten_and_release", |b| {
        b.iter(|| {
            let mut held = set.try_take_all(black_box(&all)).expect("free");
            held.engines().iter().for_each(|(_, sum)| *sum += 1);
        });
    });
    group.bench_function("submit_to_a_free_shard", |b| {
        b.iter_batched(
            || add(&[7]),
            |parcel| set.submit(parcel),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("submit_to_ten_free_shards", |b| {
        b.iter_batched(
            || add(&all),
            |parcel| set.submit(parcel),
            BatchSize::SmallInput,
        );
    });
    group.throughput(Throughput::Elements(32));
    group.bench_function("queue_32_and_release", |b| {
        b.iter_batched(
            || (0..32).map(|_| add(&[7])).collect::<Vec<_>>(),
            |parcels| {
                let held = set.try_take(7).expect("free");
                parcels.into_iter().for_each(|parcel| set.submit(parcel));
                drop(held);
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn with_rivals(c: &mut Criterion) {
    let mut group = c.benchmark_group("ownership_with_rivals");
    for rivals in [1, 3] {
        for (name, spins) in [
            ("submit", None),
            ("take_else_submit", Some(0)),
            ("spin_else_submit", Some(8)),
        ] {
            let set = shards(1);
            let stop = Arc::new(AtomicBool::new(false));
            let threads: Vec<_> = (0..rivals)
                .map(|_| {
                    let (set, stop) = (Arc::clone(&set), Arc::clone(&stop));
                    thread::spawn(move || {
                        while !stop.load(Relaxed) {
                            set.submit(add(&[0]));
                        }
                    })
                })
                .collect();
            // Acts as the worker too: nothing else picks up a token that was handed over.
            group.bench_function(format!("{name}_against_{rivals}"), |b| {
                b.iter(|| {
                    let taken = spins.and_then(|spins| set.take_spinning(0, spins));
                    match taken {
                        Some(mut held) => *held += 1,
                        None => set.submit(add(&[0])),
                    }
                    let _ = set.poll_worker(0, Waker::noop());
                });
            });
            stop.store(true, Relaxed);
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("a rival is well"));
            while set.poll_worker(0, Waker::noop()).is_ready() {}
        }
    }
    group.finish();
}

criterion_group!(benches, alone, with_rivals);
criterion_main!(benches);
