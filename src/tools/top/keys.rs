//! Reads typed keys on a separate thread, so that a key can end the program whatever it is busy with.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Time for the program to end by itself before the process is exited.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the typed keys, except those that end the program: they set `is_over`.
pub(super) fn listen(is_over: Arc<AtomicBool>) -> io::Result<Receiver<KeyCode>> {
    let (told, typed) = channel();
    let read = move || {
        while let Ok(event) = event::read() {
            let Event::Key(key) = event else {
                continue;
            };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            if ends(&key) {
                is_over.store(true, Relaxed);
                std::thread::sleep(PATIENCE);
                ratatui::restore();
                std::process::exit(0);
            }
            if told.send(key.code).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("keys".to_owned())
        .spawn(read)?;
    Ok(typed)
}

fn ends(key: &KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_end_the_program_are_those_that_one_tries() {
        let key = |code, modifiers| ends(&KeyEvent::new(code, modifiers));
        assert!(
            key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE)
        );
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(
            !key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Left, KeyModifiers::NONE)
        );
    }
}
