//! Finds the instructions that are atomic read-modify-writes, and their source lines. Reads the bytes of ELF
//! files itself; names come from the debug information, which records what was inlined.

use std::path::Path;

use addr2line::Loader;

/// A part of an object file that is loaded: its first address, and its bytes.
struct Segment {
    address: u64,
    bytes: Vec<u8>,
}

/// The code of an object file.
#[derive(Default)]
pub(crate) struct Object {
    segments: Vec<Segment>,
}

/// A function, with its file and line; the innermost of inlined ones comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

impl Object {
    /// Loads the code of a 64-bit ELF file; another file has none.
    pub(crate) fn load(path: &Path) -> Object {
        let bytes = std::fs::read(path).unwrap_or_default();
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return Object::default();
        }
        let number = |at: usize, width: usize| {
            let field = &bytes[at..at + width];
            field
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
        let headers = (0..count).map(|index| (first + index * size) as usize);
        // Loaded (1) and executable (1).
        let code = headers.filter(|at| number(*at, 4) == 1 && number(at + 4, 4) & 1 == 1);
        let segment = |at: usize| {
            let (offset, bytes_in_file) = (number(at + 8, 8) as usize, number(at + 32, 8) as usize);
            Segment {
                address: number(at + 16, 8),
                bytes: bytes[offset..offset + bytes_in_file].to_vec(),
            }
        };
        Object {
            segments: code.map(segment).collect(),
        }
    }

    pub(crate) fn is_read_modify_write(&self, address: u64) -> bool {
        let code = self.segments.iter().find_map(|segment| {
            let from = address.checked_sub(segment.address)?;
            segment.bytes.get(from as usize..)
        });
        code.is_some_and(is_read_modify_write)
    }
}

/// True if an instruction has the LOCK prefix, or exchanges a register with memory, which locks without it.
fn is_read_modify_write(code: &[u8]) -> bool {
    const LOCK: u8 = 0xf0;
    const PREFIXES: [u8; 11] = [
        LOCK, 0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65,
    ];
    let prefixes = code
        .iter()
        .take_while(|byte| PREFIXES.contains(byte))
        .count();
    if code[..prefixes].contains(&LOCK) {
        return true;
    }
    let has_rex = code.get(prefixes).is_some_and(|byte| byte & 0xf0 == 0x40);
    let rest = &code[prefixes + usize::from(has_rex)..];
    matches!(rest, [0x86 | 0x87, operands, ..] if operands >> 6 != 3)
}

/// The functions that an instruction is in, the innermost inlined one first.
pub(crate) fn frames(names: &Loader, address: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    let Ok(mut frames) = names.find_frames(address) else {
        return found;
    };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame
            .function
            .as_ref()
            .and_then(|name| name.demangle().ok());
        let file = frame.location.as_ref().and_then(|location| location.file);
        let line = frame.location.as_ref().and_then(|location| location.line);
        if let Some(file) = file {
            found.push(Frame {
                // With debug information for lines only, a function without inlined ones has no name here.
                function: function.map(|name| short_name(&name)).unwrap_or_default(),
                file: short_file(file),
                line: line.unwrap_or(0),
            });
        }
    }
    found
}

/// Returns the last two parts of a function's name, without generic arguments.
pub(crate) fn short_name(name: &str) -> String {
    let mut depth = 0;
    let mut plain = String::new();
    for (at, letter) in name.char_indices() {
        let is_arrow = letter == '>' && name[..at].ends_with('-');
        match letter {
            '<' => depth += 1,
            '>' if !is_arrow => depth -= 1,
            // `<Type as Trait>::f` begins with the wanted name.
            _ if depth == 0 || name.starts_with('<') && depth == 1 => plain.push(letter),
            _ => {}
        }
    }
    let without_trait = match plain.split_once(" as ") {
        Some((of, rest)) => format!("{of}::{}", rest.rsplit("::").next().unwrap_or("")),
        None => plain,
    };
    let is_hash = |part: &str| part.len() == 17 && part.starts_with('h');
    let parts: Vec<&str> = without_trait
        .split("::")
        .filter(|part| !part.is_empty() && !is_hash(part) && !part.starts_with('{'))
        .collect();
    parts[parts.len().saturating_sub(2)..].join("::")
}

/// Returns a file of this crate from `src/` on, of another one from its name on.
fn short_file(file: &str) -> String {
    // Independent of the build directory; files of C sources are below `target`.
    let is_own = ["/registry/", "/rustc/", "/target/"]
        .iter()
        .all(|part| !file.contains(part));
    if let Some((_, own)) = file.split_once("/src/").filter(|_| is_own) {
        return format!("src/{own}");
    }
    match file.split_once("/registry/src/") {
        Some((_, rest)) => rest
            .split_once('/')
            .map_or(rest, |(_, rest)| rest)
            .to_owned(),
        None => file.to_owned(),
    }
}

#[test]
fn locked_instructions_are_told_from_others() {
    let is = is_read_modify_write;
    assert!(is(b"\xf0\x48\x0f\xb1\x0f"), "lock cmpxchg");
    assert!(is(b"\xf0\x0f\xc1\x07"), "lock xadd");
    assert!(is(b"\x87\x07"), "xchg [rdi], eax");
    assert!(is(b"\x48\x87\x07"), "xchg [rdi], rax");
    assert!(is(b"\x66\x87\x07"), "xchg [rdi], ax");
    assert!(!is(b"\x48\x87\xc3"), "xchg rbx, rax");
    assert!(!is(b"\x48\x89\x07"), "mov [rdi], rax");
    assert!(!is(b"\x90"), "nop");
}

#[test]
fn names_are_short() {
    assert_eq!(
        short_name("core::sync::atomic::AtomicU64::fetch_add::h0123456789abcdef"),
        "AtomicU64::fetch_add"
    );
    assert_eq!(short_name("<tokio::a::B<C> as tokio::d::E>::run"), "B::run");
    assert_eq!(short_name("je_free"), "je_free");
    assert_eq!(
        short_name("tokio::runtime::park::Parker::park::{{closure}}"),
        "Parker::park"
    );
}
