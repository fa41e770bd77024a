//! Bounds the bytes of a page, however long its lists are. A list shows as many rows as fit, and states how
//! many it omits; a panel that still does not fit is replaced by a notice.

use std::cell::Cell;

use maud::{Markup, PreEscaped, html};

use super::ASSETS;

/// Maximum bytes of a page, including its styles and script.
const PAGE_BYTES_MAX: usize = 200_000;

/// Bytes reserved for everything around the panels.
const FRAME_BYTES: usize = 10_000;

/// Bytes that a list leaves for the panels after it.
const KEPT_BYTES: usize = 40_000;

/// Remaining bytes of a page.
pub(crate) struct Room {
    left: Cell<usize>,
    /// A list may take 1/`part` of the remaining bytes, after subtracting what it leaves for other panels.
    part: usize,
}

impl Room {
    /// Creates the budget of a page with few lists.
    pub(super) fn of_page() -> Room {
        let assets: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        Room {
            left: Cell::new(PAGE_BYTES_MAX - assets - FRAME_BYTES),
            part: 1,
        }
    }

    /// Creates the budget of the page with all lists.
    pub(super) fn of_report() -> Room {
        Room {
            part: 2,
            ..Room::of_page()
        }
    }

    /// Returns a panel's text, or a notice if it does not fit.
    pub(super) fn fit(&self, shown: Markup) -> Markup {
        let left = self.left.get();
        match shown.0.len() <= left {
            true => {
                self.left.set(left - shown.0.len());
                shown
            }
            false => html! { p class="empty" { "Not shown: the page is full." } },
        }
    }

    /// Returns as many rows as fit, and the number of omitted ones.
    pub(super) fn rows<T>(&self, all: &[T], show: impl Fn(&T) -> Markup) -> Rows {
        let bytes_max = self.left.get().saturating_sub(KEPT_BYTES) / self.part;
        let (mut text, mut count) = (String::new(), 0);
        for each in all {
            let row = show(each).0;
            if text.len() + row.len() > bytes_max {
                break;
            }
            text.push_str(&row);
            count += 1;
        }
        Rows {
            shown: PreEscaped(text),
            left_out: all.len() - count,
        }
    }
}

/// The rows of a list that fit.
pub(super) struct Rows {
    pub(super) shown: Markup,
    left_out: usize,
}

impl Rows {
    /// Returns the notice after the list that tells how many rows were omitted; empty if none.
    pub(super) fn rest(&self) -> Markup {
        html! {
            @if self.left_out > 0 {
                p class="quiet" { (self.left_out) " more rows are not shown: a page is limited to 200 kB." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_panels_end_where_the_page_does() {
        let room = Room::of_page();
        let row = |name: &&str| html! { li { (name) } };
        let few = room.rows(&["a", "b"], row);
        assert_eq!(few.shown.0, "<li>a</li><li>b</li>");
        assert_eq!(few.rest().0, "");
        let long = "\"".repeat(1_000);
        let many = room.rows(&vec![long.as_str(); 1_000], row);
        assert!(many.left_out > 900 && many.rest().0.contains(" more rows are not shown"));
        let sum = room.left.get();
        assert_eq!(room.fit(many.shown.clone()).0, many.shown.0);
        assert_eq!(room.left.get(), sum - many.shown.0.len());
        // Contents that exceed the budget are not shown.
        let large = html! { p { (long.repeat(100)) } };
        assert!(room.fit(large).0.contains("the page is full"));
        let later = room.rows(&vec![long.as_str(); 1_000], row);
        assert!(later.shown.0.len() <= KEPT_BYTES);
    }
}
