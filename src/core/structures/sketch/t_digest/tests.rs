//! Tests of `t_digest`.

use super::*;
use crate::base::random::Random;

fn of(compression: u64, numbers: impl IntoIterator<Item = f64>) -> TDigest {
    let mut digest = TDigest::new(compression);
    for number in numbers {
        digest.add(number).expect("few");
    }
    digest.merge();
    digest
}

fn check_invariants(digest: &TDigest) {
    let weight: u64 = digest
        .centroids
        .iter()
        .map(|centroid| centroid.weight)
        .sum();
    assert_eq!(weight, digest.count());
    assert!(digest.centroids.len() < digest.capacity());
    let merged = &digest.centroids[..digest.merged];
    assert!(merged.is_sorted_by(|first, second| first.mean <= second.mean));
    for centroid in merged {
        assert!(digest.min <= centroid.mean && centroid.mean <= digest.max);
    }
}

#[cfg(not(miri))]
#[test]
fn quantiles_are_near_the_truth_and_nearest_at_the_ends() {
    let mut random = Random::new(21);
    for shape in 0..3 {
        let mut numbers: Vec<f64> = (0..50_000)
            .map(|_| match shape {
                0 => random.unit(),
                1 => -random.unit().max(1e-12).ln(),
                _ => (0..12).map(|_| random.unit()).sum(),
            })
            .collect();
        let digest = of(100, numbers.iter().copied());
        check_invariants(&digest);
        assert!(digest.nodes().0 < 250);
        numbers.sort_by(f64::total_cmp);
        for share in [
            0.0001, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999,
        ] {
            let estimate = digest.quantile(share);
            let below = numbers.partition_point(|number| *number < estimate);
            let error = (below as f64 / numbers.len() as f64 - share).abs();
            let allowed = 0.1 * share * (1.0 - share) + 0.0002;
            assert!(error <= allowed, "{error} at {share} of shape {shape}");
            let back = digest.share_below(estimate);
            assert!((back - share).abs() <= allowed, "{back} at {share}");
        }
        assert_eq!(digest.quantile(0.0), numbers[0]);
        assert_eq!(digest.quantile(1.0), numbers[numbers.len() - 1]);
    }
}

#[test]
fn few_numbers_are_kept_exactly() {
    let digest = of(
        1000,
        [1., 2., 2., 3., 3., 3., 4., 4., 4., 4., 5., 5., 5., 5., 5.],
    );
    assert_eq!(digest.count(), 15);
    let by_rank = |rank: f64| digest.quantile(rank / 15.0);
    let ranks: Vec<f64> = (1..15).map(|rank| by_rank(f64::from(rank))).collect();
    let expected = [2., 2., 3., 3., 3., 4., 4., 4., 4., 5., 5., 5., 5., 5.];
    assert_eq!(ranks, expected);
    assert_eq!(digest.share_below(0.0), 0.0);
    assert_eq!(digest.share_below(1.0), 0.5 / 15.0);
    assert_eq!(digest.share_below(3.0), 4.5 / 15.0);
    assert_eq!(digest.share_below(9.0), 1.0);
    assert_eq!(digest.trimmed_mean(0.0, 1.0), 55.0 / 15.0);
}

/// Expected values are from the tests of Redis's module: the same numbers give the same centroids.
#[test]
fn merging_goes_as_in_redis() {
    let mut digest = TDigest::new(100);
    for number in 1..=10_000 {
        digest.add(f64::from(number)).expect("few");
    }
    assert_eq!(digest.capacity(), 610);
    assert_eq!(digest.nodes(), (51, 422));
    assert_eq!(digest.weights(), (9578, 422));
    assert_eq!(digest.merges(), 17);
}

#[cfg(not(miri))]
#[test]
fn a_union_is_as_good_as_one_digest() {
    let mut random = Random::new(8);
    let mut parts: Vec<TDigest> = (0..10).map(|_| TDigest::new(100)).collect();
    let mut numbers = Vec::new();
    for at in 0..20_000 {
        let number = random.unit() * 1000.0;
        numbers.push(number);
        parts[at % 10].add(number).expect("few");
    }
    let mut union = TDigest::new(100);
    for part in &parts {
        union.add_all(part).expect("few");
    }
    union.merge();
    check_invariants(&union);
    assert_eq!(union.count(), 20_000);
    numbers.sort_by(f64::total_cmp);
    assert_eq!((union.min(), union.max()), (numbers[0], numbers[19_999]));
    for share in [0.001, 0.01, 0.5, 0.99, 0.999] {
        let below = numbers.partition_point(|number| *number < union.quantile(share));
        let error = (below as f64 / 20_000.0 - share).abs();
        assert!(
            error <= 0.1 * share * (1.0 - share) + 0.0005,
            "{error} at {share}"
        );
    }
}

#[test]
fn the_trimmed_mean_leaves_the_ends_out() {
    let digest = of(500, (0..20).map(f64::from));
    for (low, high) in [(0.1, 0.9), (0.0, 1.0), (0.2, 0.8)] {
        assert_eq!(digest.trimmed_mean(low, high), 9.5);
    }
    assert!(TDigest::new(100).trimmed_mean(0.1, 0.9).is_nan());
}

#[test]
fn extremes_give_no_panic_and_stay_between_their_ends() {
    for numbers in [
        vec![f64::MAX, f64::MIN, 0.0],
        vec![f64::MAX; 700],
        vec![f64::MIN_POSITIVE, -0.0, 0.0],
        vec![f64::INFINITY, f64::NAN, 3.0],
        (0..3000)
            .map(|number| if number % 2 == 0 { f64::MAX } else { f64::MIN })
            .collect(),
    ] {
        let digest = of(3, numbers);
        check_invariants(&digest);
        for share in [0.0, 1e-9, 0.3, 0.5, 0.9999, 1.0] {
            let quantile = digest.quantile(share);
            assert!(quantile.is_nan() || digest.min() <= quantile && quantile <= digest.max());
            let _ = (
                digest.share_below(quantile),
                digest.trimmed_mean(0.0, share),
            );
        }
    }
    let mut empty = TDigest::new(0);
    empty.merge();
    assert!(empty.quantile(0.5).is_nan() && empty.share_below(1.0).is_nan());
    assert!(empty.min().is_nan() && empty.max().is_nan());
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let mut digest = of(100, [1.0]);
    for _ in 0..62 {
        let copy = digest.clone();
        digest.add_all(&copy).expect("fits");
    }
    let copy = digest.clone();
    assert_eq!(digest.add_all(&copy), Err(Overflow));
}
