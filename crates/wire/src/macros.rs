//! The macros that define the messages of the protocol.

/// A number with named values. A number without a name is kept, not rejected, so that an older side can
/// read the messages of a newer one.
macro_rules! numbers {
    ($(#[$meta:meta])* pub enum $name:ident: $repr:ty {
        $($(#[$item_meta:meta])* $number:literal => $item:ident),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$item_meta])* $item,)*
            /// A number without a name in this version.
            Other($repr),
        }

        impl $name {
            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> $repr {
                match self {
                    $(Self::$item => $number,)*
                    Self::Other(number) => number,
                }
            }
        }

        impl From<$repr> for $name {
            fn from(number: $repr) -> Self {
                match number {
                    $($number => Self::$item,)*
                    other => Self::Other(other),
                }
            }
        }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.number().put(out);
            }
            fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
                Ok(Self::from(<$repr>::take(rest)?))
            }
        }
    };
}

/// A group of fields inside a message.
macro_rules! records {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
                $(let $field = Field::take(rest)?;)*
                Ok(Self { $($field),* })
            }
        }

        impl ListItem for $name {}
    )*};
}

/// All messages of one direction, each with its type number.
macro_rules! messages {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$item_meta:meta])* $number:literal => $item:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)?
        })*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $($(#[$item_meta])* $item {
                $($(#[$field_meta])* $field: $type),*
            },)*
        }

        impl $name {
            /// The type number of every message of this direction, with its name.
            #[cfg(test)]
            pub(crate) const TYPES: &[(u8, &str)] = &[$(($number, stringify!($item))),*];

            /// Appends this message to `out` as one whole frame. On an error, `out` is unchanged.
            ///
            /// # Errors
            /// [`TooLarge`] when the frame would be longer than [`MAX_FRAME`](crate::MAX_FRAME).
            pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLarge> {
                match self {
                    $(Self::$item { $($field),* } => frame(out, $number, |out| {
                        $($field.put(out);)*
                        let _ = out;
                    }),)*
                }
            }

            /// Decodes a frame. Returns `None` for a type that this version does not know.
            ///
            /// # Errors
            /// [`Malformed`] if the payload does not match its type.
            pub fn decode(raw: &Frame<'_>) -> Result<Option<Self>, Malformed> {
                let mut rest = Rest(raw.payload);
                let message = match raw.kind {
                    $($number => {
                        $(let $field = Field::take(&mut rest)?;)*
                        Self::$item { $($field),* }
                    })*
                    _ => return Ok(None),
                };
                if rest.0.is_empty() {
                    Ok(Some(message))
                } else {
                    Err(Malformed("bytes after the last field"))
                }
            }
        }
    };
}
