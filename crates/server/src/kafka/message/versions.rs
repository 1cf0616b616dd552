//! ApiVersions: what we speak. The first thing that a client asks.

use crate::kafka::band::Api;
use crate::kafka::error::ErrorCode;

message! {
    ApiVersionsRequest {
        3.. client_software_name: String,
        3.. client_software_version: String,
    }

    ApiVersionsResponse {
        0.. error_code: ErrorCode,
        0.. api_keys: Vec<ApiVersion>,
        1.. throttle_time_ms: i32,
    }

    ApiVersion {
        0.. api_key: i16,
        0.. min_version: i16,
        0.. max_version: i16,
    }
}

impl ApiVersionsResponse {
    /// The whole band, in the order of its keys.
    #[must_use]
    pub fn of_the_band(error_code: ErrorCode) -> Self {
        let api_keys = Api::ALL.iter().map(|api| ApiVersion {
            api_key: api.key(),
            min_version: *api.told().start(),
            max_version: *api.told().end(),
        });
        Self { error_code, api_keys: api_keys.collect(), ..Self::default() }
    }
}
