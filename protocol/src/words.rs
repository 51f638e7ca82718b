//! Enums of which each value is a word: in configurations, on the wire, in metrics or in setups.

/// Declares such an enum, and gives it `ALL`, `name` and `named`.
#[macro_export]
macro_rules! words {
    (
        $(#[$of_enum:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$of_value:meta])* $Value:ident = $word:literal,)*
        }
    ) => {
        $(#[$of_enum])*
        $vis enum $Enum {
            $($(#[$of_value])* $Value,)*
        }

        impl $Enum {
            /// All values, in the order of their declaration.
            $vis const ALL: [Self; [$($word),*].len()] = [$(Self::$Value),*];

            /// Returns the word.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $word,)*
                }
            }

            /// Returns the value with the word `name`.
            $vis fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}
