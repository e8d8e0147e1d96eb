//! The OpenAPI document, generated from the routes.

use axum::{body::Bytes, extract::State, http::header, response::IntoResponse};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref,
    RefOr, Response as Described, ResponseBuilder, SecurityRequirement, Server,
    path::{Operation, PathItem},
    security::{Http, HttpAuthScheme, SecurityScheme},
};
use utoipa::{PartialSchema, ToSchema};

use super::error::{Code, FieldError, ProblemBody};

/// Returns the document without its routes.
pub(super) fn base() -> OpenApi {
    let mut license = LicenseBuilder::new().name("Apache-2.0").build();
    license.identifier = Some("Apache-2.0".into());
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Stead")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("Durable terminals and sandboxes for AI agents."))
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

/// Adds the address of the server, and the error responses of the guard to every operation.
pub(super) fn finish(mut document: OpenApi, url: &str) -> OpenApi {
    document.servers = Some(vec![Server::new(url)]);
    let paths = std::mem::take(&mut document.paths.paths);
    for (path, mut item) in paths {
        for operation in operations(&mut item) {
            let responses = &mut operation.responses.responses;
            responses.entry("default".into()).or_insert_with(|| RefOr::T(problem()));
        }
        // OpenAPI has no parameters that span several segments.
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
    document
}

fn problem() -> Described {
    let schema = Ref::from_schema_name("Problem");
    ResponseBuilder::new()
        .description("An error; `code` identifies it")
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

/// Serializes the document once, for all requests.
pub(super) fn text(document: &OpenApi) -> Bytes {
    Bytes::from(serde_json::to_vec(document).expect("the document is plain data"))
}

/// Responds with the serialized document.
pub(super) async fn serve(State(document): State<Bytes>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document)
}
