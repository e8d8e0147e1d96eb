//! Templates of compatible APIs, each with its builds and tags in one row.

use super::{
    Store, StoreError,
    row::{self, Read, to_json},
    sql::{Db, OptionalExtension, ParameterList, params},
};
use model::{Template, TemplateId};

impl Store {
    /// Creates or changes the template with this name in an API. `change` runs inside the transaction, which may be
    /// repeated.
    pub async fn put_template<T: Send + 'static>(
        &self,
        owner: &str,
        name: &str,
        change: impl Fn(Option<Template>) -> (Template, T) + Send + 'static,
    ) -> Result<T, StoreError> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        self.write(move |db| {
            let (template, answer) = change(find(db, "owner = ?1 AND name = ?2", [&owner, &name])?);
            write(db, &template)?;
            Ok(answer)
        })
        .await
    }

    /// Changes a template. Returns `None` if it does not exist.
    pub async fn change_template<T: Send + 'static>(
        &self,
        id: &TemplateId,
        change: impl Fn(&mut Template) -> T + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let Some(mut template) = find(db, "template_id = ?1", [id.as_str()])? else {
                return Ok(None);
            };
            let answer = change(&mut template);
            write(db, &template)?;
            Ok(Some(answer))
        })
        .await
    }

    /// Returns the template with this id or name in an API.
    pub async fn template(&self, owner: &str, name: &str) -> Result<Option<Template>, StoreError> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        self.read(move |db| {
            let which = "owner = ?1 AND (template_id = ?2 OR name = ?2)
                         ORDER BY template_id = ?2 DESC LIMIT 1";
            find(db, which, [&owner, &name])
        })
        .await
    }

    /// Returns all templates.
    pub async fn templates(&self) -> Result<Vec<Template>, StoreError> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT body FROM templates ORDER BY template_id")?;
            let rows = statement.query_map((), |row| row::json(row, "body"))?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Removes a template. Returns `false` if it does not exist.
    pub async fn remove_template(&self, id: &TemplateId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let sql = "DELETE FROM templates WHERE template_id = ?1";
            Ok(db.prepare_cached(sql)?.execute([id.as_str()])? > 0)
        })
        .await
    }
}

fn find(db: &Db, which: &str, values: impl ParameterList) -> Result<Option<Template>, StoreError> {
    let mut statement = db.prepare_cached(&format!("SELECT body FROM templates WHERE {which}"))?;
    Ok(statement.query_row(values, |row| row::json(row, "body")).optional()?)
}

fn write(db: &Db, template: &Template) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO templates (template_id, owner, name, body) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (template_id) DO UPDATE SET body = excluded.body",
    )?
    .execute(params![
        template.template_id.as_str(),
        template.owner,
        template.name,
        to_json(template),
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Build, Timestamp};

    #[tokio::test]
    async fn a_template_is_found_by_name_or_id_in_its_api_only() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let at = Timestamp::UNIX_EPOCH;
        let put = async |id: &str| {
            let id: TemplateId = id.parse().unwrap();
            let change = move |old: Option<Template>| {
                let mut template =
                    old.unwrap_or_else(|| Template::new(id.clone(), "e2b", "name", at));
                let count = template.builds.len();
                template.add(Build::new(format!("b{count}").parse().unwrap(), vec![], at));
                (template, count)
            };
            store.put_template("e2b", "name", change).await.unwrap()
        };
        assert_eq!(put("t1").await, 0);
        // The name exists, so the same template gets another build.
        assert_eq!(put("t2").await, 1);
        let by_name = store.template("e2b", "name").await.unwrap().unwrap();
        assert_eq!(by_name.builds.len(), 2);
        assert_eq!(store.template("e2b", "t1").await.unwrap(), Some(by_name.clone()));
        assert_eq!(store.template("daytona", "name").await.unwrap(), None);
        let id = by_name.template_id;
        let changed = store.change_template(&id, |template| template.builds.truncate(1)).await;
        assert_eq!(changed.unwrap(), Some(()));
        drop(store);
        let store = Store::open(home.path()).unwrap();
        assert_eq!(store.templates().await.unwrap()[0].builds.len(), 1);
        assert!(store.remove_template(&id).await.unwrap());
        assert!(!store.remove_template(&id).await.unwrap());
        assert_eq!(store.change_template(&id, |_| ()).await.unwrap(), None);
    }
}
