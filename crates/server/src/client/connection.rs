//! [`Connection`]: a request, and its answer.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::error::Error;
use crate::kafka::band::{Api, Question, Request, Response};
use crate::kafka::frame::{self, Header};
use crate::kafka::message::{ApiVersionsRequest, ApiVersionsResponse};
use crate::kafka::value::Uuid;
use crate::kafka::wire::Malformed;

/// No broker answers with more, if it is asked for less.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
const CLIENT_ID: &str = "plimsoll";
/// Every broker answers ApiVersions in this version.
const VERSION_OF_VERSIONS: i16 = 0;

/// A connection to a broker. After an error other than [`Error::NoVersion`] it is of no use.
#[derive(Debug)]
pub struct Connection {
    addr: String,
    stream: TcpStream,
    timeout: Duration,
    /// What came and is not yet a whole answer.
    received: BytesMut,
    correlation_id: i32,
    /// The versions that the broker speaks.
    theirs: BTreeMap<Api, RangeInclusive<i16>>,
}

impl Connection {
    /// Connects, and asks the broker which versions it speaks. Each call waits at most `timeout`.
    pub fn open(addr: &str, timeout: Duration) -> Result<Self, Error> {
        let unreachable = |source| Error::Unreachable { addr: addr.to_owned(), source };
        let stream = connect(addr, timeout).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        stream.set_write_timeout(Some(timeout)).map_err(unreachable)?;
        let (received, theirs) = (BytesMut::new(), BTreeMap::new());
        let addr = addr.to_owned();
        let mut connection = Self { addr, stream, timeout, received, correlation_id: 0, theirs };
        connection.negotiate()?;
        Ok(connection)
    }

    /// Where the broker is, as it was called when it was connected to.
    #[must_use]
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Asks, in the highest version that both speak, and waits for the answer. Whether that is an
    /// error is for the caller to see.
    pub fn call<Q: Question>(&mut self, question: Q) -> Result<Q::Answer, Error> {
        let request = question.into();
        let version = self.version(&request)?;
        let response = self.exchange(&request, version)?;
        Ok(Q::answer(response).expect("it was read as that"))
    }

    /// Asks where no answer comes: a produce with acks 0. It is with the system on return.
    pub fn send(&mut self, question: impl Question) -> Result<(), Error> {
        let request = question.into();
        let version = self.version(&request)?;
        self.write(&request, version)
    }

    /// The highest version that both speak, and that can say this.
    fn version(&self, request: &Request) -> Result<i16, Error> {
        let api = request.api();
        let (theirs, ours) = (self.theirs.get(&api), *api.served().start()..=highest(request));
        let common = theirs.map(|theirs| *theirs.end().min(ours.end()));
        let is_common = |version: &i16| {
            ours.contains(version) && theirs.is_some_and(|theirs| theirs.contains(version))
        };
        common.filter(is_common).ok_or_else(|| Error::NoVersion {
            addr: self.addr.clone(),
            api,
            theirs: theirs.cloned(),
            ours,
        })
    }

    fn negotiate(&mut self) -> Result<(), Error> {
        let request = ApiVersionsRequest::default().into();
        let answer = self.exchange(&request, VERSION_OF_VERSIONS);
        let answer = answer.map_err(|error| match error {
            Error::Malformed { source, .. } => self.not_kafka(source.to_string()),
            Error::Closed { .. } => self.not_kafka("it closed the connection".to_owned()),
            error => error,
        })?;
        let Response::ApiVersions(ApiVersionsResponse { error_code, api_keys, .. }) = answer else {
            unreachable!("it was read as that")
        };
        Error::check(format!("{} was asked for its versions", self.addr), error_code, None)?;
        let known = api_keys.iter().filter_map(|told| {
            Some((Api::with_key(told.api_key)?, told.min_version..=told.max_version))
        });
        self.theirs = known.collect();
        Ok(())
    }

    fn exchange(&mut self, request: &Request, version: i16) -> Result<Response, Error> {
        let api = request.api();
        self.write(request, version)?;
        let frame = self.read(api)?;
        let (answered, response) =
            Response::decode(api, version, frame).map_err(|source| self.malformed(api, source))?;
        if answered != self.correlation_id {
            let asked = self.correlation_id;
            return Err(self.not_kafka(format!("request {asked} is answered as {answered}")));
        }
        Ok(response)
    }

    fn write(&mut self, request: &Request, version: i16) -> Result<(), Error> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let header = Header {
            api: request.api(),
            version,
            correlation_id: self.correlation_id,
            client_id: Some(CLIENT_ID.to_owned()),
        };
        let frame = request.encode(&header).concat();
        self.stream.write_all(&frame).map_err(|error| self.broken(request.api(), error))
    }

    fn read(&mut self, api: Api) -> Result<Bytes, Error> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let taken = frame::take(&mut self.received, ANSWER_BYTES_MAX);
            match taken.map_err(|oversized| self.not_kafka(oversized.to_string()))? {
                Some(frame) => return Ok(frame),
                None => self.receive(deadline).map_err(|error| self.broken(api, error))?,
            }
        }
    }

    /// Reads what is there, or waits for it.
    fn receive(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let held = self.received.len();
        self.received.resize(held + READ_BYTES, 0);
        let read = self.stream.read(&mut self.received[held..]);
        self.received.truncate(held + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            read => read.map(|_| ()),
        }
    }

    fn broken(&self, api: Api, source: io::Error) -> Error {
        let addr = self.addr.clone();
        match source.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                Error::TimedOut { addr, api, timeout: self.timeout }
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Error::Closed { addr, api }
            }
            _ => Error::Broken { addr, source },
        }
    }

    fn malformed(&self, api: Api, source: Malformed) -> Error {
        Error::Malformed { addr: self.addr.clone(), api, source }
    }

    fn not_kafka(&self, why: String) -> Error {
        Error::NotKafka { addr: self.addr.clone(), why }
    }
}

/// The highest version that can say it: from 13 on a fetch names topics by their ids only.
fn highest(request: &Request) -> i16 {
    const BY_NAME: i16 = 12;
    match request {
        Request::Fetch(fetch) if fetch.topics.iter().any(|of| of.topic_id == Uuid::ZERO) => BY_NAME,
        other => *other.api().served().end(),
    }
}

/// Connects to the first of a name's addresses where somebody answers.
fn connect(addr: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut refused = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for addr in addr.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
