//! Runs file system and kernel calls that may block, off the async runtime's threads.

use std::io;

use provider::ProviderError;

pub(crate) async fn blocking<T: Send + 'static>(
    doing: &'static str,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ProviderError> {
    match base::task::blocking(act).await {
        Ok(result) => result.map_err(|source| ProviderError::failed(doing, source)),
        Err(error) => Err(ProviderError::failed(doing, error)),
    }
}
