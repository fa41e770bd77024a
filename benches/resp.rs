//! Requests and replies. Dimensions: command × number of pipelined commands; kind of reply.
//!
//! Throughput is in commands (replies), so criterion prints the time of one as its inverse.

use std::hint::black_box;

use basalt_core::base::extended::Extended;
use basalt_core::base::glob::{Case, matches};
use basalt_core::base::number::{F64Buffer, parse_f64, parse_i64};
use basalt_core::resp::reply::{Out, Protocol};
use basalt_core::resp::request::{Parser, RequestLimits, Requests};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Encodes `count` requests, GET and SET alternately, with keys and values of 16 bytes.
fn gets_and_sets(count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..count {
        let key = format!("key:{index:012}");
        if index % 2 == 0 {
            bytes.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n").as_bytes());
        } else {
            let set = format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n$16\r\nvalue:{index:010}\r\n");
            bytes.extend_from_slice(set.as_bytes());
        }
    }
    bytes
}

/// Encodes one MSET of `pairs` keys.
fn mset(pairs: usize) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n$4\r\nMSET\r\n", 1 + 2 * pairs).into_bytes();
    for index in 0..pairs {
        let pair = format!("$16\r\nkey:{index:012}\r\n$16\r\nvalue:{index:010}\r\n");
        bytes.extend_from_slice(pair.as_bytes());
    }
    bytes
}

fn inlines(count: usize) -> Vec<u8> {
    b"set key:000000000001 \"value\"\r\n".repeat(count)
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let limits = RequestLimits::default();
    for (name, make) in [
        ("get_set", gets_and_sets as fn(usize) -> Vec<u8>),
        ("inline", inlines),
    ] {
        for count in [1, 16, 100] {
            let bytes = make(count);
            let (mut parser, mut requests) = (Parser::default(), Requests::default());
            group.throughput(Throughput::Elements(count as u64));
            group.bench_with_input(BenchmarkId::new(name, count), &bytes, |bencher, bytes| {
                bencher.iter(|| {
                    requests.clear();
                    let consumed = parser.parse(black_box(bytes), &limits, count, &mut requests);
                    assert_eq!(consumed, Ok(bytes.len()));
                    requests.spans.len()
                });
            });
        }
    }
    let bytes = mset(1000);
    group.throughput(Throughput::Elements(2001));
    for pieces in [1, 16] {
        let (mut parser, mut requests) = (Parser::default(), Requests::default());
        let piece = bytes.len().div_ceil(pieces);
        group.bench_function(
            BenchmarkId::new("mset_of_1000_in_pieces", pieces),
            |bencher| {
                bencher.iter(|| {
                    requests.clear();
                    for piece_index in 1..=pieces {
                        let end = (piece * piece_index).min(bytes.len());
                        let consumed = parser.parse(&bytes[..end], &limits, 64, &mut requests);
                        assert!(consumed.is_ok());
                    }
                    requests.requests.len()
                });
            },
        );
    }
    group.finish();
}

fn reply(criterion: &mut Criterion) {
    const COUNT: usize = 100;
    let mut group = criterion.benchmark_group("reply");
    group.throughput(Throughput::Elements(COUNT as u64));
    type Write = fn(&mut Out);
    let kinds: [(&str, Write); 6] = [
        ("ok", Out::ok),
        ("null", Out::null),
        ("integer_short", |out| out.integer(black_box(7))),
        ("integer_long", |out| out.integer(black_box(1_234_567_890))),
        ("bulk_16", |out| out.bulk(black_box(b"value:0123456789"))),
        ("double", |out| out.double(black_box(1234.5678))),
    ];
    for (name, write) in kinds {
        let mut out = Out::new(Protocol::Resp2);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                for _ in 0..COUNT {
                    write(&mut out);
                }
                out.len_bytes()
            });
        });
    }
    group.finish();
}

fn base(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("base");
    group.bench_function("parse_i64", |bencher| {
        bencher.iter(|| parse_i64(black_box(b"1234567")))
    });
    group.bench_function("parse_f64", |bencher| {
        bencher.iter(|| parse_f64(black_box(b"1234.567")))
    });
    group.bench_function("format_f64", |bencher| {
        let mut buffer = F64Buffer::default();
        bencher.iter(|| buffer.format(black_box(1234.5678)).len());
    });
    group.bench_function("incrbyfloat", |bencher| {
        let mut text = Vec::new();
        bencher.iter(|| {
            text.clear();
            let value = Extended::parse(black_box(b"1234.5678"));
            let increment = Extended::parse(black_box(b"0.1"));
            let sum = value.zip(increment).and_then(|(a, b)| a.checked_add(b));
            sum.expect("finite").print(&mut text);
            text.len()
        });
    });
    group.bench_function("glob", |bencher| {
        bencher.iter(|| {
            matches(
                black_box(b"user:*:name"),
                b"user:123456:name",
                Case::Sensitive,
            )
        });
    });
    group.finish();
}

criterion_group!(benches, parse, reply, base);
criterion_main!(benches);
