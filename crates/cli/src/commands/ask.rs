//! One question to a broker over HTTP/1.0, which ends with the connection: so no client is needed.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// How long it may take to connect, and between bytes.
const PATIENCE: Duration = Duration::from_secs(5);
/// What an answer may have: of a hundred thousand topics, say.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What is answered to `GET path`.
pub(crate) fn get(address: &str, path: &str) -> Result<String> {
    let address = bare(address);
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"), PATIENCE)
}

/// What is answered to `POST path`, a command; what it asks for may take so long.
pub(crate) fn post(address: &str, path: &str, patience: Duration) -> Result<String> {
    let address = bare(address);
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n");
    ask(address, &format!("{head}X-Plimsoll: operator\r\n\r\n"), patience)
}

/// Also what a browser shows is taken.
fn bare(address: &str) -> &str {
    address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/')
}

fn unknown(address: &str) -> String {
    let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => format!("{address} cannot be found"),
        _ => format!(
            "{address:?} is no HOST:PORT, for example 127.0.0.1:9093: --http says where a broker answers operators"
        ),
    }
}

fn ask(address: &str, request: &str, patience: Duration) -> Result<String> {
    let places = address.to_socket_addrs().with_context(|| unknown(address))?;
    let mut last = None;
    for place in places {
        match TcpStream::connect_timeout(&place, PATIENCE) {
            Ok(stream) => return exchange(stream, address, request, patience),
            Err(error) => last = Some(error),
        }
    }
    let nobody = format!("no broker answers on {address}; --http says where, as its --http does");
    match last {
        Some(error) => Err(error).context(nobody),
        None => bail!(nobody),
    }
}

fn exchange(
    mut stream: TcpStream,
    address: &str,
    request: &str,
    patience: Duration,
) -> Result<String> {
    stream
        .set_read_timeout(Some(patience))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))?;
    stream.write_all(request.as_bytes()).with_context(|| format!("{address} takes no question"))?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    read.map_err(|why| match why.kind() {
        // As the system says it where a time is up.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("it has said nothing for {patience:?}")
        }
        _ => why.into(),
    })
    .with_context(|| format!("{address} does not answer"))?;
    let answer = String::from_utf8(answer).with_context(|| format!("{address} answers no text"))?;
    let (status, body) = parse(&answer)
        .with_context(|| {
            format!(
                "what is on {address} does not answer as a broker answers operators; --http says where that is, which is \
                 not where its clients connect"
            )
        })?;
    match reason(body) {
        _ if status == 200 => Ok(body.to_owned()),
        Some(reason) => bail!("{address} refuses: {reason}"),
        None => bail!("{address} answers {status}: {}", body.trim()),
    }
}

/// Why nothing came of it, in the broker's words.
fn reason(body: &str) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(body.get("error")?.as_str()?.to_owned())
}

/// The status and the body of an answer.
fn parse(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_brokers_words() {
        let told = reason("{\n  \"error\": \"no node has the number 9\"\n}\n");
        assert_eq!(told.as_deref(), Some("no node has the number 9"));
        for other in ["", "busy", "{}", "{\"error\": 4}"] {
            assert_eq!(reason(other), None, "{other}");
        }
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        assert_eq!(parse("HTTP/1.0 200 OK\r\na: b\r\n\r\nbody"), Some((200, "body")));
        assert_eq!(parse("HTTP/1.1 404 Not Found\r\n\r\n"), Some((404, "")));
        for wrong in ["", "HTTP/1.0 200 OK", "SSH-2.0\r\n\r\n", "HTTP/1.0 ok\r\n\r\n"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
