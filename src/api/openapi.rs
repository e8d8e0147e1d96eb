//! The OpenAPI document, made of the routes themselves.

use axum::{Json, extract::State};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref,
    RefOr, Response as Described, ResponseBuilder, SecurityRequirement,
    path::{Operation, PathItem},
    security::{Http, HttpAuthScheme, SecurityScheme},
};
use utoipa::{PartialSchema, ToSchema};

use super::error::{Code, FieldError, ProblemBody};

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

/// Adds to every operation what the guard may answer.
pub(super) fn finish(mut document: OpenApi) -> OpenApi {
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

/// The document.
pub(super) async fn serve(State(document): State<OpenApi>) -> Json<OpenApi> {
    Json(document)
}
