//! The encoding of one value: integers little-endian, strings and bytes after a `u32` length, lists after
//! a `u32` count, an optional value after a `u8` that is 0 or 1.

use super::error::Malformed;

/// The rest of a payload that is being decoded.
#[derive(Debug)]
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Malformed("cut short"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Malformed("cut short"))?;
        self.0 = tail;
        Ok(*head)
    }
}

/// A value that can be encoded and decoded.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed>;
}

/// A value that may be in a list. Bytes are not a list: they have a denser encoding.
pub(super) trait ListItem: Field {}

macro_rules! integers {
    ($($name:ty),*) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(rest.array()?))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i32);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        match u8::take(rest)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        Ok(if bool::take(rest)? { Some(T::take(rest)?) } else { None })
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }

    fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        let length = u32::take(rest)? as usize;
        Ok(rest.bytes(length)?.to_vec())
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }

    fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        let length = u32::take(rest)? as usize;
        let text = std::str::from_utf8(rest.bytes(length)?);
        Ok(text.map_err(|_| Malformed("a string that is not UTF-8"))?.to_owned())
    }
}

impl<T: ListItem> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_length(out, self.len());
        for item in self {
            item.put(out);
        }
    }

    fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        let count = u32::take(rest)? as usize;
        // Every item takes at least a byte, so a count beyond the rest is invalid; the capacity is
        // bounded again because an item may be far larger in memory than on the wire.
        if count > rest.0.len() {
            return Err(Malformed("a list longer than its frame"));
        }
        let mut list = Self::with_capacity(count.min(256));
        for _ in 0..count {
            list.push(T::take(rest)?);
        }
        Ok(list)
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        Ok((A::take(rest)?, B::take(rest)?))
    }
}

impl ListItem for String {}
impl ListItem for u16 {}
impl ListItem for Vec<u8> {}
impl<A: Field, B: Field> ListItem for (A, B) {}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    // A length beyond u32 cannot be sent at all: `finish` refuses the frame by its size, so the
    // clipped number is never read.
    u32::try_from(length).unwrap_or(u32::MAX).put(out);
}
