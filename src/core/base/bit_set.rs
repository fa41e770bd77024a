//! Sets of a few known elements, as bits of an integer.

/// Declares a set type with one bit per element, from the lowest bit up in the order of the declaration, and its
/// operations. The text after an element is its name for users.
#[macro_export]
macro_rules! bit_set {
    ($(#[$outer:meta])* $vis:vis struct $name:ident($bits:vis $repr:ty) {
        $($(#[$doc:meta])* $flag:ident $(= $text:literal)?;)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        $vis struct $name($bits $repr);

        impl $name {
            $crate::bit_set!(@consts $repr, 0, $($(#[$doc])* $flag;)*);

            /// No bit set.
            pub const NONE: $name = $name(0);

            /// The bits that have a name, with their names, in the order of the declaration.
            pub const ALL: &'static [($name, &'static str)] = &[$($(($name::$flag, $text),)?)*];

            /// Returns the union of both sets.
            #[inline]
            #[must_use]
            pub const fn or(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Returns the intersection of both sets.
            #[inline]
            #[must_use]
            pub const fn and(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }

            /// Returns the bits of `self` that are not in `other`.
            #[inline]
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// Returns the set with the bits of `other` set or cleared.
            #[inline]
            #[must_use]
            pub const fn put(self, other: $name, is_set: bool) -> $name {
                if is_set { self.or(other) } else { self.without(other) }
            }

            /// Whether every bit of `other` is set.
            #[inline]
            #[must_use]
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is set.
            #[inline]
            #[must_use]
            pub const fn any(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns the names of the bits that are set.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::ALL.iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| *name)
            }
        }
    };
    (@consts $repr:ty, $index:expr, $(#[$doc:meta])* $flag:ident; $($rest:tt)*) => {
        $(#[$doc])*
        pub const $flag: Self = Self(1 << $index);
        $crate::bit_set!(@consts $repr, $index + 1, $($rest)*);
    };
    (@consts $repr:ty, $index:expr,) => {};
}
