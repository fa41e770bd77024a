//! `oom-score-adj`: how likely the kernel kills this process when memory runs out.

use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;

use basalt_commands::config::Config;
use basalt_commands::config::values::OomScoreAdj;

/// The process's OOM score adjustment, and its original value.
#[derive(Debug)]
pub(super) struct OomScore {
    file: PathBuf,
    /// The score at process start, recorded when another one is first set.
    inherited: Mutex<Option<i32>>,
}

impl OomScore {
    /// Returns the score of this process.
    pub(super) fn of_process() -> OomScore {
        OomScore::at(PathBuf::from("/proc/self/oom_score_adj"))
    }

    fn at(file: PathBuf) -> OomScore {
        OomScore {
            file,
            inherited: Mutex::new(None),
        }
    }

    /// Applies the configured score. A process may always raise its score, but needs a privilege to lower it.
    pub(super) fn apply(&self, config: &Config, is_replica: bool) -> io::Result<()> {
        let mut inherited = self.inherited.lock();
        // The third value of `oom-score-adj-values` is for child processes, which this server does not have.
        let of_role = config.oom_score_adj_values[usize::from(is_replica)];
        let score = match (config.oom_score_adj, *inherited) {
            (OomScoreAdj::No, None) => return Ok(()),
            (OomScoreAdj::No, Some(before)) => before,
            (OomScoreAdj::Absolute, _) => of_role,
            (OomScoreAdj::Relative, Some(before)) => before + of_role,
            (OomScoreAdj::Relative, None) => self.read()? + of_role,
        };
        let before = match *inherited {
            Some(before) => before,
            None => self.read()?,
        };
        std::fs::write(&self.file, score.clamp(-1000, 1000).to_string())
            .inspect_err(|error| tracing::warn!("Unable to write oom_score_adj: {error}"))?;
        *inherited = (config.oom_score_adj != OomScoreAdj::No).then_some(before);
        Ok(())
    }

    fn read(&self) -> io::Result<i32> {
        std::fs::read_to_string(&self.file)
            .and_then(|text| text.trim().parse().map_err(io::Error::other))
            .inspect_err(|error| tracing::warn!("Unable to read oom_score_adj: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_set_and_put_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("score");
        std::fs::write(&file, "100\n").expect("written");
        let score = OomScore::at(file.clone());
        let config = |how, of_master| Config {
            oom_score_adj: how,
            oom_score_adj_values: [of_master, 200, 800],
            ..Config::default()
        };
        for (how, of_master, expected) in [
            (OomScoreAdj::No, 7, "100\n"),
            (OomScoreAdj::Relative, 50, "150"),
            (OomScoreAdj::Relative, 70, "170"),
            (OomScoreAdj::Absolute, 20, "20"),
            (OomScoreAdj::Relative, 1_500, "1000"),
            (OomScoreAdj::No, 7, "100"),
            (OomScoreAdj::Absolute, -2_000, "-1000"),
            (OomScoreAdj::No, 7, "100"),
        ] {
            score
                .apply(&config(how, of_master), false)
                .expect("written");
            let now = std::fs::read_to_string(&file).expect("there");
            assert_eq!(now, expected, "{how:?} {of_master}");
        }
        score
            .apply(&config(OomScoreAdj::Relative, 7), true)
            .expect("written");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "300");
        score
            .apply(&config(OomScoreAdj::No, 7), true)
            .expect("written");
        std::fs::remove_file(&file).expect("there");
        assert!(score.apply(&config(OomScoreAdj::No, 0), false).is_ok());
        assert!(
            score
                .apply(&config(OomScoreAdj::Absolute, 0), false)
                .is_err()
        );
    }
}
