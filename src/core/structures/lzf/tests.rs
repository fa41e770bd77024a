//! Tests of `lzf`.

use proptest::prelude::*;

use super::*;

fn check_round_trip(input: &[u8]) {
    if let Some(compressed) = compress(input) {
        assert!(compressed.len() < input.len());
        assert_eq!(decompress(&compressed, input.len()).as_deref(), Some(input));
        assert_eq!(decompress(&compressed, input.len() - 1), None);
        assert_eq!(decompress(&compressed, input.len() + 1), None);
    }
}

#[test]
fn what_redis_compressed_comes_back() {
    // From DUMP of redis-server 7.0.15, without the frame.
    let recorded = b"\x1fthe quick brown fox jumps over t \x1e\x08lazy dog;`\x0d\xe0\xd4,\x00a\xe0\
            \xff\x00\xe0\x18\x00\x01aa";
    let mut text = b"the quick brown fox jumps over the lazy dog; ".repeat(6);
    text.resize(text.len() + 300, b'a');
    assert_eq!(recorded.len(), 0x3D);
    assert_eq!(decompress(recorded, 0x23A).as_deref(), Some(&text[..]));
    let ours = compress(&text).expect("gets smaller");
    assert!(ours.len() <= 0x48, "{} bytes", ours.len());
    check_round_trip(&text);
}

#[test]
fn repetition_of_every_length_and_distance_comes_back() {
    for len in (0..600).step_by(if cfg!(miri) { 67 } else { 1 }) {
        check_round_trip(&vec![b'a'; len]);
    }
    let distances = [1, 2, 255, 256, 257, 8190, 8191, 8192, 8193, 8194];
    let distances = &distances[..if cfg!(miri) { 5 } else { 10 }];
    for distance in distances.iter().copied() {
        let unit: Vec<u8> = (0..distance as u32)
            .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        check_round_trip(&unit.repeat(3));
    }
    assert_eq!(compress(&[b'a'; 1000]).map(|out| out.len()), Some(14));
}

#[test]
fn what_does_not_get_smaller_is_left_alone() {
    let distinct: Vec<u8> = (0..=255).collect();
    for input in [&b""[..], b"a", b"aaa", b"abcdefgh", &distinct] {
        assert_eq!(compress(input), None);
    }
}

#[test]
fn malformed_input_is_refused() {
    for (input, len, why) in [
        (&b"\x02ab"[..], 3, "a run that breaks off"),
        (b"\x01ab", 1, "a run too long"),
        (b"\x00a\x20", 4, "a copy without its distance"),
        (b"\x00a\xe0\x00", 10, "a long copy without its distance"),
        (b"\x00a\xe0", 10, "a long copy without its length"),
        (b"\x20\x00", 3, "a copy of nothing"),
        (b"\x00a\x20\x01", 4, "a copy from before the beginning"),
        (b"\x00a\x20\x00", 3, "a copy too long"),
        (b"\x00a\x20\x00", 5, "too few bytes"),
        (b"\x00a", usize::MAX, "a length that cannot be"),
        (b"", 1, "nothing"),
    ] {
        assert_eq!(decompress(input, len), None, "{why} was accepted");
    }
    assert_eq!(
        decompress(b"\x00a\x20\x00", 4).as_deref(),
        Some(&b"aaaa"[..])
    );
    assert_eq!(decompress(b"", 0).as_deref(), Some(&b""[..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn texts_of_few_letters_come_back(
        parts in prop::collection::vec(
            (prop::collection::vec(0_u8..4, 1..40), 1_usize..60),
            0..12,
        ),
    ) {
        let input: Vec<u8> = parts.iter().flat_map(|(part, count)| part.repeat(*count)).collect();
        check_round_trip(&input);
    }

    #[test]
    fn any_bytes_come_back(input in prop::collection::vec(any::<u8>(), 0..3000)) {
        check_round_trip(&input);
    }

    #[test]
    fn garbage_never_panics_nor_gives_another_length(
        input in prop::collection::vec(any::<u8>(), 0..200),
        len in 0_usize..4000,
    ) {
        if let Some(output) = decompress(&input, len) {
            prop_assert_eq!(output.len(), len);
            prop_assert_eq!(output.capacity(), len);
        }
    }
}
