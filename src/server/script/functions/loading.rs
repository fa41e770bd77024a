//! Runs the code of a library in this thread's interpreter: when the library is loaded (FUNCTION LOAD), and
//! when one of its functions is first called on this thread.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mlua::Value;

use super::compiled::{self, Callable, LibraryLoadResult, LibraryMemory};
use super::{FunctionLibrary, Functions, IDS};
use crate::script::current::RUN;
use crate::script::errors;
use crate::script::vm::{self, Vm};
use crate::sys::lua::Called;
use crate::telemetry::clock::Ticks;
use basalt_commands::command::error::{CommandError, shown};

/// A library whose code was run, and the result in the interpreter.
pub(super) struct EvaluatedLibrary {
    pub(super) source: Arc<FunctionLibrary>,
    ran: LibraryLoadResult,
}

impl EvaluatedLibrary {
    /// Runs the code of a library in this thread's interpreter. This takes some time: no lock is held.
    pub(super) fn new(
        functions: &Functions,
        name: String,
        code: &[u8],
        code_start: usize,
    ) -> Result<EvaluatedLibrary, CommandError> {
        let mut source = FunctionLibrary {
            id: IDS.fetch_add(1, Relaxed),
            name,
            code: code.to_vec(),
            code_start,
            functions: Vec::new(),
            compiled: LibraryMemory::default(),
        };
        let ran = vm::with(|vm| {
            vm.follow_functions(functions);
            vm.load_library(&source)
        })?;
        source.functions = ran.declared().cloned().collect();
        if source.functions.is_empty() {
            return Err("ERR No functions registered".into());
        }
        Ok(EvaluatedLibrary {
            source: Arc::new(source),
            ran,
        })
    }

    /// Stores the registered functions in this thread's interpreter, if that interpreter ran the code. It did
    /// not if a script was running in it (then a temporary one did), or if it was discarded since.
    pub(super) fn keep(all_made: impl IntoIterator<Item = EvaluatedLibrary>) {
        vm::with_own(|vm| {
            for made in all_made {
                vm.keep_library(&made.source, made.ran);
            }
        });
    }
}

impl Vm {
    /// Returns the function of a name, case-insensitively; runs the code of its library first, if this
    /// interpreter has not run it. The caller must have applied loads and flushes by [`Vm::follow`].
    #[inline]
    pub(in crate::script) fn of_function(
        &mut self,
        name: &[u8],
        functions: &Functions,
    ) -> Result<Rc<Callable>, CommandError> {
        match self.libraries.called(name) {
            Some(callable) => Ok(Rc::clone(callable)),
            None => self.look_up_function(name, functions),
        }
    }

    #[inline(never)]
    fn look_up_function(
        &mut self,
        name: &[u8],
        functions: &Functions,
    ) -> Result<Rc<Callable>, CommandError> {
        const NOT_FOUND: &str = "ERR Function not found";
        let found = functions.find(name).ok_or(NOT_FOUND)?;
        if !self.libraries.has(&found.source) {
            let ran = self.load_library(&found.source)?;
            self.libraries.keep(&found.source, ran);
        }
        let declared = &found.declared().name;
        let callable = self.libraries.learn(name, &found.source, declared);
        Ok(callable.ok_or(NOT_FOUND)?)
    }

    /// Stores the result of a library's code, if it was run in this interpreter.
    fn keep_library(&mut self, source: &Arc<FunctionLibrary>, ran: LibraryLoadResult) {
        if ran.is_of(&self.lua) {
            self.libraries.keep(source, ran);
        }
    }

    /// Runs the code of a library; returns its registrations.
    fn load_library(
        &mut self,
        source: &FunctionLibrary,
    ) -> Result<LibraryLoadResult, CommandError> {
        let code = &source.code[source.code_start..];
        let run = self
            .load(code, "@user_function", &self.library_globals)
            .map_err(|text| format!("ERR Error compiling function: {text}"))?;
        compiled::forget_registered();
        RUN.with(|state| {
            state.interrupted.set(None);
            state.loading_since.set(Some(Ticks::now()));
        });
        let result = self.set_loading.call::<()>(true).and_then(|()| {
            let result = self.call_protected(&run);
            self.set_loading.call::<()>(false)?;
            result
        });
        let interrupted = RUN.with(|state| {
            state.loading_since.set(None);
            state.interrupted.take()
        });
        let ran = LibraryLoadResult::take();
        let refuse =
            |why: &str| CommandError::from(format!("ERR Error registering functions: {why}"));
        if interrupted.is_some() {
            return Err(refuse("ERR FUNCTION LOAD timeout"));
        }
        match result {
            Ok(Called::Text(()) | Called::Value(_)) => Ok(ran),
            Ok(Called::Failed(Value::Table(table))) => match table.raw_get::<Value>("err") {
                Ok(Value::String(text)) => Err(refuse(&shown(&text.as_bytes()))),
                _ => Err(refuse("(null)")),
            },
            Ok(Called::Failed(_)) => Err(refuse("execution failure")),
            Err(error) => Err(refuse(&format!("ERR {}", errors::plain(&error)))),
        }
    }
}
