//! [`Reply`]: an answer, whole.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    kind: &'static str,
    pub(super) body: Bytes,
    policy: Option<String>,
}

/// What a problem is told as.
#[derive(Serialize)]
struct Problem<'a> {
    error: &'a str,
}

impl Reply {
    pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let mut body = serde_json::to_vec_pretty(value).expect("our values have names for keys");
        body.push(b'\n');
        Self { status, kind: "application/json", body: body.into(), policy: None }
    }

    /// A sentence that says what is wrong.
    pub(super) fn problem(status: StatusCode, error: &str) -> Self {
        Self::json(status, &Problem { error })
    }

    pub(super) fn metrics(text: String) -> Self {
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        Self { status: StatusCode::OK, kind, body: text.into(), policy: None }
    }

    /// A page that may run the one script that bears this nonce, and load nothing but itself.
    pub(super) fn page(text: String, nonce: &str) -> Self {
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'"
        );
        let kind = "text/html; charset=utf-8";
        Self { status: StatusCode::OK, kind, body: text.into(), policy: Some(policy) }
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let mut say = |name, value| headers.insert(name, HeaderValue::from_static(value));
        say(header::CONTENT_TYPE, self.kind);
        say(header::CACHE_CONTROL, "no-store");
        say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        say(header::REFERRER_POLICY, "no-referrer");
        if let Some(policy) = self.policy {
            let policy = HeaderValue::try_from(policy).expect("it has no line ends");
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        response
    }
}
