//! Parameters of a statement, by position or by name.

use super::{error::Error, value::Bind};

/// Which parameter a value is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameter<'a> {
    /// The number after the `?`.
    Position(usize),
    /// The name, with its colon.
    Name(&'a str),
}

/// Receives each parameter with its value.
type Receiver<'a> = dyn FnMut(Parameter<'_>, &dyn Bind) -> Result<(), Error> + 'a;

/// The parameters of one execution of a statement.
pub(crate) trait ParameterList {
    /// Passes each parameter to `bind`.
    fn each(&self, bind: &mut Receiver<'_>) -> Result<(), Error>;
}

impl ParameterList for () {
    fn each(&self, _: &mut Receiver<'_>) -> Result<(), Error> {
        Ok(())
    }
}

impl<T: Bind, const N: usize> ParameterList for [T; N] {
    fn each(&self, bind: &mut Receiver<'_>) -> Result<(), Error> {
        positions(self.iter().map(|value| value as &dyn Bind), bind)
    }
}

impl<T: Bind> ParameterList for &[T] {
    fn each(&self, bind: &mut Receiver<'_>) -> Result<(), Error> {
        positions(self.iter().map(|value| value as &dyn Bind), bind)
    }
}

impl ParameterList for &[(&str, &dyn Bind)] {
    fn each(&self, bind: &mut Receiver<'_>) -> Result<(), Error> {
        self.iter().try_for_each(|(name, value)| bind(Parameter::Name(name), *value))
    }
}

fn positions<'a>(
    values: impl Iterator<Item = &'a dyn Bind>,
    bind: &mut Receiver<'_>,
) -> Result<(), Error> {
    let mut numbered = values.enumerate();
    numbered.try_for_each(|(index, value)| bind(Parameter::Position(index + 1), value))
}

/// Values of different types for `?1`, `?2` and so on.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$(&$value as &dyn $crate::sql::Bind),*] as &[&dyn $crate::sql::Bind]
    };
}
pub(crate) use params;

/// Values for parameters with names, such as `:id`.
macro_rules! named_params {
    ($($name:literal: $value:expr),* $(,)?) => {
        &[$(($name, &$value as &dyn $crate::sql::Bind)),*] as &[(&str, &dyn $crate::sql::Bind)]
    };
}
pub(crate) use named_params;
