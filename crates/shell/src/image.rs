//! The state that one executable hands over to the next when it is replaced in place: names and values.
//! The next executable skips unknown names and has a default for missing ones, so that the versions of the
//! two may differ.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;

use wire::{decode_sections, encode_sections};

const MAGIC: &[u8; 8] = b"STEADIMG";

/// A list of named values.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Image(Vec<(String, Vec<u8>)>);

impl Image {
    /// Adds bytes. The same name may be added several times.
    pub fn put(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.0.push((name.to_owned(), bytes.into()));
    }

    pub fn put_number(&mut self, name: &str, number: impl Into<i128>) {
        let number: i128 = number.into();
        self.put(name, number.to_le_bytes());
    }

    /// Adds an image within this one.
    pub fn put_image(&mut self, name: &str, image: &Self) {
        self.put(name, encode_sections(&image.0));
    }

    /// Returns the first value of a name.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// Returns the first value of a name as text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).and_then(|bytes| String::from_utf8(bytes.to_vec()).ok())
    }

    /// Returns the first value of a name as a number, if it is one and fits.
    pub fn number<T: TryFrom<i128>>(&self, name: &str) -> Option<T> {
        let bytes = self.bytes(name)?.try_into().ok()?;
        T::try_from(i128::from_le_bytes(bytes)).ok()
    }

    /// Returns all images of a name.
    pub fn images(&self, name: &str) -> impl Iterator<Item = Self> {
        self.all(name).filter_map(|bytes| decode_sections(bytes).ok()).map(Self)
    }

    /// Returns all values of a name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, bytes)| bytes.as_slice())
    }

    /// Writes the image to a memory file that outlives this executable.
    pub fn write(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(rustix::fs::memfd_create("stead-image", MemfdFlags::CLOEXEC)?);
        file.write_all(MAGIC)?;
        file.write_all(&encode_sections(&self.0))?;
        file.rewind()?;
        Ok(file.into())
    }

    /// Reads the image that the previous executable left.
    pub fn read(fd: OwnedFd) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::from(fd).read_to_end(&mut bytes)?;
        let sections = bytes.strip_prefix(MAGIC).and_then(|rest| decode_sections(rest).ok());
        sections
            .map(Self)
            .ok_or_else(|| io::Error::other("the descriptor contains no image of a host"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_image_is_read_as_it_was_written() {
        let mut inner = Image::default();
        inner.put("id", "t1");
        inner.put_number("signal", -1);
        let mut image = Image::default();
        image.put_number("large", u64::MAX);
        image.put_image("terminal", &inner);
        image.put_image("terminal", &Image::default());
        let read = Image::read(image.write().unwrap()).unwrap();
        assert_eq!(read, image);
        assert_eq!(read.number::<u64>("large"), Some(u64::MAX));
        assert_eq!(read.number::<u16>("large"), None);
        assert_eq!(read.number::<u16>("missing"), None);
        let terminals: Vec<Image> = read.images("terminal").collect();
        assert_eq!(terminals.len(), 2);
        assert_eq!(terminals[0].text("id").as_deref(), Some("t1"));
        assert_eq!(terminals[0].number::<i32>("signal"), Some(-1));
    }
}
