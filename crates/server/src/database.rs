//! Which database the server uses: the file in its home, or PostgreSQL.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use config::Settings;
use store::Store;

/// Marks a home whose rows are in PostgreSQL.
const MARK: &str = "store-is-postgresql";

/// Opens the store that the settings name.
pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Store> {
    let (home, url) = (settings.home.clone(), settings.store.url.reveal().to_owned());
    if url.is_empty() {
        if home.join(MARK).exists() {
            bail!(
                "the rows of {} are in PostgreSQL, and no store.url is set; set it, or remove {MARK} there to begin \
                 with an empty database",
                home.display()
            );
        }
        let store = base::task::blocking(move || Store::open(&home)).await?;
        return store.context("cannot open the store");
    }
    let file = home.join("stead.db");
    if file.exists() {
        bail!(
            "store.url is set, but there is a database in {}; move it away to begin with the rows that PostgreSQL has",
            file.display()
        );
    }
    let opened = base::task::blocking(move || Store::open_postgres(&url)).await?;
    let store = opened.context("cannot open the store")?;
    mark(&settings.home).context("cannot mark the home")?;
    Ok(store)
}

fn mark(home: &Path) -> std::io::Result<()> {
    let file = home.join(MARK);
    if file.exists() {
        return Ok(());
    }
    fs::File::create(&file)?.sync_all()?;
    fs::File::open(home)?.sync_all()
}
