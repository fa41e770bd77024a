//! The miss-ratio curve: the hit ratio by memory size, with the current size marked, and as a sentence.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::{HEIGHT, WIDTH, bytes, framed};
use crate::telemetry::miss_ratio::{CurveFigures, PERCENT};

/// Describes the curve in a sentence: `Half the memory would cost 8 points of the hit ratio, …`.
pub(crate) fn sentence(curve: &CurveFigures) -> Option<String> {
    let points = |percent: u64| curve.gain(percent).map(|gain| 100.0 * gain);
    let (half, twice) = (points(50)?, points(200)?);
    let of_half = match -half {
        cost if cost < 0.05 => "would not lower the hit ratio".to_owned(),
        cost => format!("would lower the hit ratio by {cost:.1} points"),
    };
    let of_twice = match twice {
        gain if gain < 0.05 => "would not raise it".to_owned(),
        gain => format!("would raise it by {gain:.1}"),
    };
    Some(format!(
        "Half the memory ({}) {of_half}, twice as much ({}) {of_twice}.",
        bytes(curve.memory_bytes as f64 / 2.0),
        bytes(curve.memory_bytes as f64 * 2.0)
    ))
}

/// Draws the curve, or states why no curve is available.
pub(crate) fn draw(curve: &CurveFigures) -> Markup {
    let (Some(ratios), Some(lru)) = (curve.corrected, curve.lru) else {
        let why = match (curve.is_kept, curve.measured) {
            (false, _) => "The miss-ratio curve is turned off (miss-ratio-curve no).",
            (true, None) => "No key has been looked up yet.",
            (true, Some(_)) => {
                "Only a sample of the keys is tracked, and no key of the sample has been looked up yet."
            }
        };
        return html! { p class="empty" { (why) } };
    };
    let measured = curve.measured.unwrap_or_default();
    let all = || ratios.iter().chain(&lru).copied();
    // Show only the part of the scale that has values, rounded to tenths.
    let low = (all().fold(1.0, f64::min) * 10.0 - 0.5).floor().max(0.0) / 10.0;
    let high = ((all().fold(0.0, f64::max) * 10.0 + 0.5).ceil() / 10.0).min(1.0);
    let x = |index: usize| (index as f64 * WIDTH / (PERCENT.len() - 1) as f64).round();
    let y = |ratio: f64| (HEIGHT - (ratio - low) / (high - low) * HEIGHT).round();
    let line = |ratios: &[f64]| {
        let mut path = String::new();
        for (index, ratio) in ratios.iter().enumerate() {
            let step = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{step}{} {}", x(index), y(*ratio));
        }
        path
    };
    let dots: String = ratios
        .iter()
        .enumerate()
        .map(|(index, ratio)| format!("M{} {}h0", x(index), y(*ratio)))
        .collect();
    let today = PERCENT
        .iter()
        .position(|percent| *percent == 100)
        .unwrap_or(0);
    let down = [high, (high + low) / 2.0, low].map(|ratio| format!("{:.0} %", 100.0 * ratio));
    let across = PERCENT.map(|percent| match percent {
        100 => format!("now: {}", bytes(curve.memory_bytes as f64)),
        _ => bytes(curve.memory_bytes as f64 * percent as f64 / 100.0),
    });
    let sentence = sentence(curve).unwrap_or_default();
    let picture = html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
            aria-label={ "Hit ratio by memory size. " (sentence) } {
            path class="grid" d={ "M0 " (HEIGHT / 2.0) "H" (WIDTH) "M0 1H" (WIDTH) } {}
            path class="mark" d={ "M" (x(today)) " 0V" (HEIGHT) } {}
            path class="line l1 dashed" d=(PreEscaped(line(&lru))) {}
            path class="line l0" d=(PreEscaped(line(&ratios))) {}
            path class="dots" d=(PreEscaped(dots)) {}
        }
    };
    html! {
        p class="sentence" { (sentence) }
        (framed(&down, &across, &picture))
        ul class="legend" {
            li {
                span class="key k0" aria-hidden="true" {} "Hit ratio, currently "
                data value=(measured * 100.0) data-field="curve_hit_ratio_measured" { (format!("{:.1} %", 100.0 * measured)) }
            }
            li { span class="key k1" aria-hidden="true" {} "Exact LRU cache of that size" }
        }
        (table(&ratios, &lru, measured, &across))
    }
}

/// Formats the curve as a table.
fn table(
    ratios: &[f64; PERCENT.len()],
    lru: &[f64; PERCENT.len()],
    measured: f64,
    sizes: &[String; PERCENT.len()],
) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Memory" } th scope="col" class="number" { "Hit ratio" }
                th scope="col" class="number" { "Change from now" } th scope="col" class="number" { "LRU" }
            } }
            tbody {
                @for (index, (percent, size)) in PERCENT.iter().zip(sizes).enumerate() {
                    tr {
                        th scope="row" { (size) }
                        td class="number" {
                            data value=(100.0 * ratios[index]) data-field={ "curve_hit_ratio_at_" (percent) } {
                                (format!("{:.1} %", 100.0 * ratios[index]))
                            }
                        }
                        td class="number" { (format!("{:+.1} points", 100.0 * (ratios[index] - measured))) }
                        td class="number" {
                            data value=(100.0 * lru[index]) data-field={ "curve_lru_hit_ratio_at_" (percent) } {
                                (format!("{:.1} %", 100.0 * lru[index]))
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_what_half_and_twice_the_memory_would_do() {
        let mut curve = CurveFigures {
            memory_bytes: 512 << 20,
            measured: Some(0.6586),
            corrected: Some([0.4721, 0.5744, 0.6586, 0.6586, 0.66]),
            lru: Some([0.4, 0.5, 0.6, 0.6, 0.6]),
            is_kept: true,
            ..CurveFigures::default()
        };
        let said = sentence(&curve).expect("it is known");
        assert_eq!(
            said,
            "Half the memory (256 MiB) would lower the hit ratio by 8.4 points, \
             twice as much (1 GiB) would not raise it."
        );
        let page = draw(&curve).into_string();
        assert!(
            page.contains("now: 512 MiB") && page.contains("M500 0V300"),
            "{page}"
        );
        curve.corrected = None;
        assert_eq!(sentence(&curve), None);
        let said = |curve: &CurveFigures| draw(curve).into_string();
        assert!(said(&curve).contains("no key of the sample has been looked up yet"));
        curve.measured = None;
        assert!(said(&curve).contains("No key has been looked up yet."));
    }
}
