//! The OpenAPI document, made of the routes themselves.

use axum::{body::Bytes, extract::State, http::header, response::IntoResponse};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref,
    RefOr, Required, Response as Described, ResponseBuilder, SecurityRequirement,
    path::{Operation, ParameterBuilder, ParameterIn, PathItem},
    security::{Http, HttpAuthScheme, SecurityScheme},
};
use utoipa::{PartialSchema, ToSchema};

use super::error::{Code, FieldError, ProblemBody};

/// Routes that exist twice, and the two ways their paths begin.
const OLDER: &[&str] =
    &["/input", "/resize", "/signal", "/snapshot", "/recording", "/stream", "/ws"];
const NEWER_ROOT: &str = "/api/terminals/{id}";
const OLDER_ROOT: &str = "/session/{sid}/pty/{id}";

/// What the document says besides its routes.
pub(super) fn base() -> OpenApi {
    let mut license = LicenseBuilder::new().name("Apache-2.0").build();
    license.identifier = Some("Apache-2.0".into());
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Stead")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("Durable terminals for agents and people."))
                .license(Some(license))
                .build(),
        )
        .components(Some(
            ComponentsBuilder::new()
                .schema("Problem", ProblemBody::schema())
                .schema(FieldError::name(), FieldError::schema())
                .schema(Code::name_of_schema(), Code::schema())
                .security_scheme("token", bearer)
                .build(),
        ))
        .security(Some([SecurityRequirement::new("token", Vec::<String>::new())]))
        .build()
}

impl Code {
    fn name_of_schema() -> std::borrow::Cow<'static, str> {
        <Code as ToSchema>::name()
    }
}

/// Adds the older names of routes, and to every operation what the guard may answer.
pub(super) fn finish(mut document: OpenApi) -> OpenApi {
    let older: Vec<(String, PathItem)> = document
        .paths
        .paths
        .iter()
        .filter(|(path, _)| OLDER.iter().any(|last| **path == format!("{NEWER_ROOT}{last}")))
        .map(|(path, item)| (path.replace(NEWER_ROOT, OLDER_ROOT), item.clone()))
        .collect();
    for (path, mut item) in older {
        for operation in operations(&mut item) {
            operation.operation_id = operation.operation_id.take().map(|id| format!("{id}_older"));
            let session = ParameterBuilder::new()
                .name("sid")
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some("The thread"))
                .schema(Some(String::schema()))
                .build();
            operation.parameters.get_or_insert_default().insert(0, RefOr::T(session));
        }
        document.paths.paths.insert(path, item);
    }
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            let responses = &mut operation.responses.responses;
            responses.entry("default".into()).or_insert_with(|| RefOr::T(problem()));
        }
    }
    document
}

fn problem() -> Described {
    let schema = Ref::from_schema_name("Problem");
    ResponseBuilder::new()
        .description("A refusal; `code` says which")
        .content("application/problem+json", ContentBuilder::new().schema(Some(schema)).build())
        .build()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.patch,
        &mut item.head,
        &mut item.options,
    ]
    .into_iter()
    .filter_map(Option::as_mut)
}

/// The document, written once.
pub(super) fn text(document: &OpenApi) -> Bytes {
    Bytes::from(serde_json::to_vec(document).expect("the document is plain data"))
}

/// Answers with the document.
pub(super) async fn serve(State(document): State<Bytes>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document)
}
