//! The data types and their encodings, under the names known to clients.
//!
//! A kind is the type and encoding that a value reports to clients. The layout in memory follows from the entry's
//! form: a small collection is bytes of its entry, a large one an object.

/// The data types, as TYPE names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum DataType {
    String = 0,
    List = 1,
    Set = 2,
    SortedSet = 3,
    Hash = 4,
    Stream = 6,
    Bloom = 7,
    Cuckoo = 8,
    CountMin = 9,
    TopK = 10,
    TDigest = 11,
    Json = 12,
}

/// One more than the largest number of a data type, for arrays indexed by it.
pub const TYPES: usize = 13;

impl DataType {
    /// All types with the name that TYPE and SCAN TYPE use.
    pub const ALL: [(DataType, &'static str); 12] = [
        (DataType::String, "string"),
        (DataType::List, "list"),
        (DataType::Set, "set"),
        (DataType::SortedSet, "zset"),
        (DataType::Hash, "hash"),
        (DataType::Stream, "stream"),
        (DataType::Bloom, "MBbloom--"),
        (DataType::Cuckoo, "MBbloomCF"),
        (DataType::CountMin, "CMSk-TYPE"),
        (DataType::TopK, "TopK-TYPE"),
        (DataType::TDigest, "TDIS-TYPE"),
        (DataType::Json, "ReJSON-RL"),
    ];

    /// Returns the name as in replies of TYPE.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or("none", |(_, name)| name)
    }
}

/// The layout of a value, as OBJECT ENCODING names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum ValueEncoding {
    Raw = 0,
    Int = 1,
    Embstr = 2,
    Hashtable = 3,
    Intset = 4,
    Listpack = 5,
    Quicklist = 6,
    Skiplist = 7,
    Stream = 8,
    Listpackex = 9,
}

impl ValueEncoding {
    const ALL: [(ValueEncoding, &'static str); 10] = [
        (ValueEncoding::Raw, "raw"),
        (ValueEncoding::Int, "int"),
        (ValueEncoding::Embstr, "embstr"),
        (ValueEncoding::Hashtable, "hashtable"),
        (ValueEncoding::Intset, "intset"),
        (ValueEncoding::Listpack, "listpack"),
        (ValueEncoding::Quicklist, "quicklist"),
        (ValueEncoding::Skiplist, "skiplist"),
        (ValueEncoding::Stream, "stream"),
        (ValueEncoding::Listpackex, "listpackex"),
    ];

    /// Returns the name as in replies of OBJECT ENCODING.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Type and encoding in one byte, as stored in an entry's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKind(pub u8);

impl ObjectKind {
    /// Combines a type and an encoding.
    pub const fn new(data_type: DataType, encoding: ValueEncoding) -> ObjectKind {
        ObjectKind(((data_type as u8) << 4) | encoding as u8)
    }

    /// A string stored as an integer.
    pub const INT: ObjectKind = ObjectKind::new(DataType::String, ValueEncoding::Int);
    /// A short string that was never edited.
    pub const EMBSTR: ObjectKind = ObjectKind::new(DataType::String, ValueEncoding::Embstr);
    /// A long string, or one that was edited.
    pub const RAW: ObjectKind = ObjectKind::new(DataType::String, ValueEncoding::Raw);

    /// Returns the type.
    pub fn data_type(self) -> DataType {
        match self.0 >> 4 {
            0 => DataType::String,
            1 => DataType::List,
            2 => DataType::Set,
            3 => DataType::SortedSet,
            4 => DataType::Hash,
            6 => DataType::Stream,
            7 => DataType::Bloom,
            8 => DataType::Cuckoo,
            9 => DataType::CountMin,
            10 => DataType::TopK,
            11 => DataType::TDigest,
            12 => DataType::Json,
            other => unreachable!("no data type {other}"),
        }
    }

    /// Returns the encoding.
    pub fn encoding(self) -> ValueEncoding {
        ValueEncoding::ALL[usize::from(self.0 & 15)].0
    }
}
