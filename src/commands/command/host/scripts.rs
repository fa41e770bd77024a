//! The interface of commands to the store of scripts and functions, and to the code that runs them.

use crate::command::error::CommandError;

/// Appends a change of libraries to the log before the change is visible. Returns the position after it; None if
/// nothing is logged.
pub type LogChange<'a> = &'a mut dyn FnMut() -> Option<u64>;

/// Whether the total size limit of scripts and libraries applies to what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextBound {
    /// Texts beyond the limit are refused.
    Holds,
    /// The text comes from a file or a primary, and is accepted in any case.
    Lifted,
}

/// The store of scripts and functions, as far as commands manage it.
pub trait Scripts: Send + Sync {
    /// Compiles a script and keeps it until SCRIPT FLUSH; returns its SHA-1 in hexadecimal.
    fn load(&self, body: &[u8], bound: TextBound) -> Result<[u8; 40], CommandError>;
    /// Whether a script with this SHA-1 can be called.
    fn exists(&self, sha1: &[u8]) -> bool;
    /// Returns the text of a script.
    fn body(&self, sha1: &[u8]) -> Option<Vec<u8>>;
    /// Deletes all scripts.
    fn flush(&self);
    /// Ends all scripts (or all functions) that have exceeded the time limit and have changed nothing.
    fn kill(&self, what: ExecutionKind) -> Result<(), CommandError>;
    /// Creates a library; returns its name.
    fn load_library(
        &self,
        code: &[u8],
        may_replace: bool,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<String, CommandError>;
    /// Deletes a library.
    fn delete_library(&self, name: &[u8], log: LogChange<'_>) -> Result<(), CommandError>;
    /// Deletes all libraries.
    fn flush_libraries(&self, log: LogChange<'_>);
    /// Returns the log position after all changes of libraries that are visible so far.
    fn libraries_position(&self) -> u64;
    /// Returns all libraries whose names match the pattern; None: all.
    fn libraries(&self, pattern: Option<&[u8]>) -> Vec<LibraryView>;
    /// Returns all libraries as one payload.
    fn dump_libraries(&self) -> Vec<u8>;
    /// Creates the libraries in a payload of FUNCTION DUMP.
    fn restore_libraries(
        &self,
        payload: &[u8],
        policy: Restore,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<(), CommandError>;
    /// Returns the numbers of libraries and functions.
    fn library_counts(&self) -> (usize, usize);
    /// Returns the statistics of the scripts that needed more shards or more time than they declared: of all, or of the
    /// named script only.
    fn statistics(&self, name: Option<&[u8]>) -> Vec<ScriptStatistics>;
    /// Returns the function that has run the longest, of those that run now.
    fn running_function(&self) -> Option<FunctionRun>;
    /// Returns all scripts, functions and transactions that have been running for long.
    fn running(&self) -> Vec<RunView>;
}

/// A kind of work that may have shards locked for long. Scripts and functions can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionKind {
    /// A script that EVAL runs.
    Script,
    /// A function that FCALL runs.
    Function,
    /// The commands that EXEC runs, other than scripts.
    Transaction,
}

impl ExecutionKind {
    /// Returns the name in SCRIPT STATS and the log.
    pub fn name(self) -> &'static str {
        match self {
            ExecutionKind::Script => "script",
            ExecutionKind::Function => "function",
            ExecutionKind::Transaction => "transaction",
        }
    }
}

/// What happens to existing libraries when others are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    /// The libraries stay, and no name may occur twice.
    Append,
    /// The libraries are deleted first.
    Flush,
    /// The libraries stay unless one of the same name is restored.
    Replace,
}

/// A library, for FUNCTION LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryView {
    /// Name of the library.
    pub name: String,
    /// Source of the library.
    pub code: Vec<u8>,
    /// Functions of the library.
    pub functions: Vec<FunctionView>,
}

/// A function, for FUNCTION LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionView {
    /// Name of the function.
    pub name: String,
    /// Description given by the library.
    pub description: Option<Vec<u8>>,
    /// The names of its flags.
    pub flags: Vec<&'static str>,
}

/// A running function, for FUNCTION STATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRun {
    /// The function's name.
    pub name: String,
    /// The command with its arguments.
    pub command: Vec<Vec<u8>>,
    /// Milliseconds since it started.
    pub duration_ms: u64,
}

/// A running script, function or transaction, for SCRIPT STATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    /// Kind of the run.
    pub kind: ExecutionKind,
    /// The script's SHA-1, the function's name, or `exec`.
    pub name: Vec<u8>,
    /// The ID of its client.
    pub client: u64,
    /// Milliseconds since it started.
    pub duration_ms: u64,
    /// The shards that it has locked, in ascending order.
    pub shards: Vec<u16>,
    /// Whether the run can be killed.
    pub standing: ScriptKillState,
}

/// Whether a run can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKillState {
    /// A kill is possible: it would end the run.
    Killable,
    /// A kill was sent, and the script has not noticed it yet.
    Killed,
    /// A kill is refused: data may have been changed, or the run is a transaction.
    Wrote,
}

impl ScriptKillState {
    /// Returns the name in SCRIPT STATS.
    pub fn name(self) -> &'static str {
        match self {
            ScriptKillState::Killable => "killable",
            ScriptKillState::Killed => "killed",
            ScriptKillState::Wrote => "wrote",
        }
    }
}

/// Statistics of a script that needed more shards or more time than it declared, for SCRIPT STATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptStatistics {
    /// SHA-1 of the script, or the name of the function.
    pub name: Vec<u8>,
    /// Runs since it was first recorded here.
    pub runs: u64,
    /// Shards that it acquired while running.
    pub extended: u64,
    /// Times that it was rolled back and run again.
    pub reruns: u64,
    /// Reruns because the script exceeded the time of its thread.
    pub slow: u64,
    /// Runs with all shards locked.
    pub wide: u64,
    /// Number of rules learned by which undeclared keys can be derived before the script runs.
    pub learned_keys: u64,
}

/// An empty store: for tests that have no interpreter.
#[cfg(any(test, feature = "testing"))]
pub struct NoScripts;

#[cfg(any(test, feature = "testing"))]
impl Scripts for NoScripts {
    fn load(&self, _: &[u8], _: TextBound) -> Result<[u8; 40], CommandError> {
        Ok([b'0'; 40])
    }
    fn exists(&self, _: &[u8]) -> bool {
        false
    }
    fn body(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn flush(&self) {}
    fn kill(&self, _: ExecutionKind) -> Result<(), CommandError> {
        Ok(())
    }
    fn load_library(
        &self,
        _: &[u8],
        _: bool,
        _: TextBound,
        log: LogChange<'_>,
    ) -> Result<String, CommandError> {
        log();
        Ok("lib".to_owned())
    }
    fn delete_library(&self, _: &[u8], _: LogChange<'_>) -> Result<(), CommandError> {
        Err("ERR Library not found".into())
    }
    fn flush_libraries(&self, log: LogChange<'_>) {
        log();
    }
    fn libraries_position(&self) -> u64 {
        0
    }
    fn libraries(&self, _: Option<&[u8]>) -> Vec<LibraryView> {
        vec![LibraryView {
            name: "lib".to_owned(),
            code: b"code".to_vec(),
            functions: vec![FunctionView {
                name: "f".to_owned(),
                description: None,
                flags: vec!["no-writes"],
            }],
        }]
    }
    fn dump_libraries(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore_libraries(
        &self,
        _: &[u8],
        _: Restore,
        _: TextBound,
        log: LogChange<'_>,
    ) -> Result<(), CommandError> {
        log();
        Ok(())
    }
    fn library_counts(&self) -> (usize, usize) {
        (1, 1)
    }
    fn statistics(&self, _: Option<&[u8]>) -> Vec<ScriptStatistics> {
        Vec::new()
    }
    fn running_function(&self) -> Option<FunctionRun> {
        None
    }
    fn running(&self) -> Vec<RunView> {
        Vec::new()
    }
}
