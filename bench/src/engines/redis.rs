//! Redis: XADD to a server of our own over a Unix socket, in a directory of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::engine::{Engine, Setup};
use crate::meter::peak_kib;
use crate::task::Level;

const START: Duration = Duration::from_secs(60);
const REPLY_BYTES_MAX: usize = 1 << 20;

pub(super) struct Redis {
    server: Server,
    connections: Vec<Mutex<Connection>>,
}

/// Is killed when dropped.
struct Server(Child);

struct Connection {
    socket: BufReader<UnixStream>,
    request: Vec<u8>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Redis {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        let fsync = match setup.level {
            Level::Durable => "always",
            Level::Buffered => "no",
            Level::Interval => "everysec",
        };
        // A path of a socket may have 107 bytes: it is named from inside the directory.
        let child = Command::new("redis-server")
            .current_dir(&setup.dir)
            .args(["--port", "0", "--unixsocket", "socket", "--daemonize", "no"])
            .args(["--save", "", "--appendonly", "yes", "--appendfsync", fsync])
            .args(["--auto-aof-rewrite-percentage", "0", "--maxclients", "200"])
            .args(["--proto-max-bulk-len", "16mb", "--dir", "."])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("redis-server does not start; is it installed?")?;
        let server = Server(child);
        let begun = Instant::now();
        let socket = setup.dir.join("socket");
        loop {
            // While it loads its log it answers every command with an error.
            if let Ok(mut connection) = Connection::open(&socket)
                && connection.call(&[b"PING"]).is_ok()
            {
                break;
            }
            ensure!(begun.elapsed() < START, "redis-server did not answer for {START:?}");
            thread::sleep(Duration::from_millis(2));
        }
        let connections = (0..setup.appenders)
            .map(|_| Connection::open(&socket).map(Mutex::new))
            .collect::<Result<_>>()?;
        Ok(Self { server, connections })
    }

    fn call<T>(&self, with: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        with(&mut self.connections[0].lock().expect("an appender panicked"))
    }
}

impl Connection {
    fn open(socket: &Path) -> Result<Self> {
        Ok(Self { socket: BufReader::new(UnixStream::connect(socket)?), request: Vec::new() })
    }

    /// A command and its answer, if that is one line or one string.
    fn call(&mut self, words: &[&[u8]]) -> Result<Vec<u8>> {
        self.send(words)?;
        match self.reply()? {
            Reply::Bytes(bytes) => Ok(bytes),
            Reply::Items(_) => bail!("redis answered with a list"),
        }
    }

    fn send(&mut self, words: &[&[u8]]) -> Result<()> {
        self.request.clear();
        write!(self.request, "*{}\r\n", words.len())?;
        for word in words {
            write!(self.request, "${}\r\n", word.len())?;
            self.request.extend_from_slice(word);
            self.request.extend_from_slice(b"\r\n");
        }
        Ok(self.socket.get_mut().write_all(&self.request)?)
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.socket.read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("redis hung up")?;
        let length = || rest.parse::<usize>().context("redis sent no length");
        match kind {
            "+" | ":" => Ok(Reply::Bytes(rest.as_bytes().to_vec())),
            "$" => {
                let length = length()?;
                ensure!(length <= REPLY_BYTES_MAX, "redis sent {length} bytes");
                let mut bytes = vec![0; length + 2];
                self.socket.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Reply::Bytes(bytes))
            }
            "*" => (0..length()?).map(|_| self.reply()).collect::<Result<_>>().map(Reply::Items),
            _ => bail!("redis says {line}"),
        }
    }
}

enum Reply {
    Bytes(Vec<u8>),
    Items(Vec<Reply>),
}

impl Engine for Redis {
    fn append(&self, appender: usize, record: &[u8]) -> Result<()> {
        let mut connection = self.connections[appender].lock().expect("an appender panicked");
        connection.call(&[b"XADD", b"log", b"*", b"r", record])?;
        Ok(())
    }

    /// `everysec` does; `WAITAOF` is younger than this version.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn syncs_itself(&self) -> bool {
        true
    }

    fn read(&self) -> Result<(u64, u64)> {
        self.call(|connection| {
            let (mut records, mut bytes) = (0, 0);
            let mut from = b"-".to_vec();
            loop {
                connection.send(&[b"XRANGE", b"log", &from, b"+", b"COUNT", b"1000"])?;
                let Reply::Items(entries) = connection.reply()? else { bail!("no list") };
                if entries.is_empty() {
                    return Ok((records, bytes));
                }
                for entry in entries {
                    let Reply::Items(mut entry) = entry else { bail!("no entry") };
                    let (Some(Reply::Items(mut fields)), Some(Reply::Bytes(id))) =
                        (entry.pop(), entry.pop())
                    else {
                        bail!("no entry")
                    };
                    let Some(Reply::Bytes(record)) = fields.pop() else { bail!("no record") };
                    records += 1;
                    bytes += record.len() as u64;
                    from = [b"(", id.as_slice()].concat();
                }
            }
        })
    }

    fn others_peak_kib(&self) -> u64 {
        peak_kib(&self.server.0.id().to_string()).unwrap_or(0)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // It writes its log to the end, syncs and goes; no answer is the answer.
        self.call(|connection| connection.send(&[b"SHUTDOWN"]))?;
        let Self { mut server, .. } = *self;
        server.0.wait()?;
        Ok(())
    }

    fn abandon(self: Box<Self>) {
        drop(self);
    }
}
