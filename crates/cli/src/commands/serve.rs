//! `plimsoll serve`: a broker for Kafka's clients.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use plimsoll_log::Policy;
use plimsoll_server::broker::{Failed, Member, Node, Options, Promise, Seat};
use plimsoll_server::http::{Absence, Http, Lobby};
use plimsoll_server::net::Listener;
use plimsoll_server::seed::Seeding;
use tokio::sync::watch;

use crate::events;
use crate::exit::Exit;
use crate::interrupt;
use crate::output;
use crate::serve_args::{NO_MEMORY, ServeArgs};
use crate::serve_config::Config;

/// Serves until it is asked to stop.
pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    let config = Config::of(args)?;
    if args.typed.print_config {
        output::text(&config.print())?;
        return Ok(Exit::Ok);
    }
    let _events = events::print()?;
    serve(&config, args.typed.until_stdin_ends)
}

fn serve(config: &Config, until_stdin_ends: bool) -> Result<Exit> {
    check_who_may(config, config.listen)?;
    if let Some(http) = config.http.0 {
        check_who_may(config, http)?;
    }
    let advertised = config.advertise.as_deref().map(host_and_port).transpose()?;
    let mut options = options(config)?;
    options.seat = seat(config, advertised.as_ref())?;
    if let Some(seat) = &options.seat {
        check_who_may(config, seat.listen)?;
    }
    // Said before anything is read or made; the node takes it once it is open.
    std::net::TcpListener::bind(config.listen).with_context(|| cannot_listen(config.listen))?;
    plimsoll_sync::keep_freed_memory();
    let (ask, asked) = watch::channel(false);
    if until_stdin_ends {
        let ask = ask.clone();
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            io::copy(&mut io::stdin(), &mut io::sink()).ok();
            ask.send(true).ok();
        })?;
    }
    interrupt::on_interrupt(move || {
        ask.send(true).ok();
    })?;
    let http = config.http.0.map(|address| {
        Http::bind(address)
            .with_context(|| format!("cannot listen on {address}; --http says where else, or none"))
    });
    let http = http.transpose()?.map(|http| match &advertised {
        Some((host, _)) => http.advertise(host.clone()),
        None => http,
    });
    let mut addresses = Addresses { clients: config.listen, http, were_said: false };
    while run_once(config, &options, advertised.as_ref(), &mut addresses, &asked)? {
        output::news("it opens again, with what it was given, or what was decided or healed");
    }
    output::news("stopped: everything is durable");
    Ok(Exit::Ok)
}

/// Where it listens: at the same places whenever it opens again.
struct Addresses {
    clients: SocketAddr,
    /// Somebody answers there also while it is not open.
    http: Option<Http>,
    /// Who started it has read where that is.
    were_said: bool,
}

impl Addresses {
    /// Answers operators while it is not open. Where that cannot be, it opens and closes all the same.
    fn lobby(&self, absence: Absence) -> Option<Lobby> {
        let said = |why| output::news(&format!("operators are not answered meanwhile: {why}"));
        Lobby::open(self.http.as_ref()?, absence).map_err(said).ok()
    }
}

/// Opens the node and serves until it is asked to stop, or has been given what it lacked: then it is to open again.
/// Everything is durable on return.
fn run_once(
    config: &Config,
    options: &Options,
    advertised: Option<&(String, u16)>,
    addresses: &mut Addresses,
    asked: &watch::Receiver<bool>,
) -> Result<bool> {
    let lobby = addresses.lobby(Absence::Opening);
    let opened = Node::open(&config.dir, options.clone());
    if let (Err(why), Some(seat)) = (&opened, &options.seat)
        && why.lacks_what_others_have()
    {
        output::news(&format!(
            "the other brokers may have what this directory lacks (`plimsoll cluster status` of one of them says which shards are led): then have \
             another come in its place, with an empty directory and another number (`plimsoll cluster join`), and once that votes \
             `plimsoll cluster remove --node {}`; keep this directory until then",
            seat.node
        ));
    }
    let opened = opened.map_err(|why| match why {
        // Another start would do no better, as it may where the disk failed while it ran.
        Failed::Damaged(_) => anyhow::Error::msg(why.to_string()),
        why => why.into(),
    });
    let node = opened.with_context(|| format!("the broker in {}", config.dir.display()))?;
    if let (None, Some(rack)) = (&options.seat, &config.rack) {
        let own = Member { rack: Some(rack.clone()), ..Member::own() };
        node.members().set(BTreeMap::from([(node.members().here(), own)]));
    }
    let runtime = node.runtime().clone();
    let mut listener = match runtime.block_on(bind(config, addresses.clients)) {
        Ok(listener) => listener,
        Err(taken) => {
            // It ends in order: otherwise the next start would doubt a run that served nobody.
            node.close().context("what was acknowledged may not all be durable")?;
            return Err(taken);
        }
    };
    addresses.clients = listener.address().context("the address is gone")?;
    let node = Arc::new(node);
    if let Some((host, port)) = advertised.cloned() {
        listener = listener.advertise(host, port);
    }
    if addresses.were_said {
        output::news(&format!("it is open again; of the last run: {}", node.verdict()));
    } else {
        say_where(&node, config, &listener, addresses.http.as_ref())?;
        addresses.were_said = true;
    }
    let seeding = Seeding::begin(&node);
    let (stop, stopping) = watch::channel(false);
    let ends = ends(Arc::clone(&node), seeding.until_ready(), asked.clone());
    let ending = runtime.spawn(part(Arc::clone(&node), ends, stop));
    let counters = listener.counters();
    let mut serving = runtime.spawn(listener.serve(Arc::clone(&node), stopping.clone()));
    drop(lobby);
    let answering = addresses.http.clone().map(|http| {
        let answering = http.serve(Arc::clone(&node), counters, stopping.clone());
        runtime.spawn(async move {
            if let Err(why) = answering.await {
                output::news(&format!("operators are not answered: {why}"));
            }
        })
    });
    let ended = runtime.block_on(async {
        tokio::select! {
            served = &mut serving => Some(served),
            () = until_told(stopping) => None,
        }
    });
    ending.abort();
    // It holds the node.
    runtime.block_on(ending).ok();
    if let Some(answering) = answering {
        // A panic there was printed there.
        drop(runtime.block_on(answering));
    }
    let _lobby = addresses.lobby(Absence::Closing);
    let served = ended.unwrap_or_else(|| runtime.block_on(serving));
    let is_ready = seeding.end();
    let lost = node.lost();
    let opens_again = is_ready && lost.is_none() && !*asked.borrow();
    if !matches!(lost, Some(Failed::Disk { .. })) {
        output::news(if opens_again {
            "closing, to open again: what was acknowledged is being made durable"
        } else {
            "stopping: what was acknowledged is being made durable"
        });
    }
    let node = Arc::into_inner(node).ok_or_else(|| anyhow!("a connection is still open"))?;
    let synced = node.close();
    served.context("the task that serves has failed")?.context("the address is gone")?;
    // It has ended as by a crash, and says why.
    let synced = match synced {
        Err(failed @ Failed::Disk { .. }) => return Err(failed.into()),
        synced => synced,
    };
    synced.context("what was acknowledged may not all be durable")?;
    lost.map_or(Ok(opens_again), |lost| Err(lost.into()))
}

/// Done when it is asked to stop, or has been given what it lacked and others can do without it meanwhile.
async fn ends(node: Arc<Node>, ready: impl Future<Output = ()>, mut asked: watch::Receiver<bool>) {
    let turn = async {
        ready.await;
        node.turn().await;
    };
    tokio::select! {
        () = turn => {}
        // Where nobody can ask any more it ends too.
        _ = asked.wait_for(|is_asked| *is_asked) => {}
    }
}

/// Done when it is told to stop, or nobody is left who could tell it.
async fn until_told(mut stopping: watch::Receiver<bool>) {
    stopping.wait_for(|is_stopping| *is_stopping).await.ok();
}

/// Once it is to end, has others lead what it leads, while clients are served still; then stops.
async fn part(node: Arc<Node>, ends: impl Future<Output = ()>, stop: watch::Sender<bool>) {
    ends.await;
    let parted = node.part().await;
    for (shard, to) in &parted.handed {
        output::news(&format!("shard {shard} is led by node {to} now"));
    }
    drop(node);
    stop.send(true).ok();
}

/// Where it sits in a cluster, if it is in one.
fn seat(config: &Config, advertised: Option<&(String, u16)>) -> Result<Option<Seat>> {
    let (node, members, cluster) = match (config.node, &config.members, &config.cluster_id) {
        (None, None, None) => return Ok(None),
        (Some(node), Some(members), Some(cluster)) => (node, &members.0, cluster),
        _ => bail!(
            "a node of a cluster needs node, members and cluster-id: plimsoll cluster init prints the \
             last two"
        ),
    };
    if cluster.len() != 32 || !cluster.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        bail!("{cluster:?} is no cluster-id: 32 hexadecimal digits");
    }
    let own = members.get(&node).with_context(|| format!("node {node} is none of the members"))?;
    let found = own.to_socket_addrs().with_context(|| format!("{own} cannot be found"))?.next();
    let listen = found.with_context(|| format!("{own} is no address"))?;
    let clients = advertised
        .cloned()
        .unwrap_or_else(|| (config.listen.ip().to_string(), config.listen.port()));
    if clients.1 == 0 {
        bail!("other brokers tell clients where this one is: --listen needs a port of its own");
    }
    if is_anywhere(&clients.0) {
        let (host, port) = clients;
        bail!(
            "clients and other brokers are told where this one is, and {host} is no place that they can connect to: \
             say where with --advertise HOST:PORT, for example --advertise broker-{node}.example:{port}"
        );
    }
    Ok(Some(Seat {
        cluster: cluster.clone(),
        node,
        members: members.clone(),
        listen,
        clients,
        rack: config.rack.clone(),
    }))
}

/// Takes the address that clients are to find.
async fn bind(config: &Config, address: SocketAddr) -> Result<Listener> {
    let listener = Listener::bind(address, config.limits).await;
    listener.with_context(|| cannot_listen(address))
}

fn cannot_listen(address: SocketAddr) -> String {
    format!("cannot listen on {address}; --listen says where else")
}

/// Nobody says who they are: only this machine is served, unless that is said to be wanted.
fn check_who_may(config: &Config, listen: SocketAddr) -> Result<()> {
    if listen.ip().is_loopback() || config.allow_anyone {
        return Ok(());
    }
    bail!(
        "{listen} can be reached by others, and there is no authentication yet: whoever reaches it may \
         read, write and delete everything; --allow-anyone says that this is wanted"
    )
}

/// Whether nobody can connect to it from elsewhere: it is where one listens on all addresses of a machine.
fn is_anywhere(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_unspecified())
}

fn host_and_port(text: &str) -> Result<(String, u16)> {
    let split = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let (host, port) = split.with_context(|| format!("{text:?} is not HOST:PORT"))?;
    let port = port.parse().with_context(|| format!("{port:?} is no port"))?;
    // Brackets are how an address with colons is typed; clients are told the address.
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok((bare.to_owned(), port))
}

fn options(config: &Config) -> Result<Options> {
    let memory = Some(config.memory.clone()).filter(|memory| memory != Path::new("none"));
    let knee = match &config.profile {
        Some(path) => Some(knee(path)?),
        None => None,
    };
    Ok(Options {
        memory,
        auto_create: !config.no_auto_create,
        partitions: config.partitions,
        partitions_max: config.partitions_max,
        knee,
        flush: config.flush,
        ring_bytes: config.ring_bytes,
        tail_bytes: config.tail_bytes,
        reserve_bytes: config.reserve_bytes,
        chapter_bytes: config.chapter_bytes,
        chapter_age: config.chapter_age,
        scrub_every: config.scrub_every.0,
        groups: config.groups.clone(),
        spreads_leaders: !config.keep_leaders,
        on_majority_dirty: config.on_majority_dirty.into(),
        allows_one_domain: config.allow_one_domain,
        replication_factor: config.replication_factor.into(),
        seat: None,
    })
}

/// The age at which the lab found that syncs begin to cost little.
fn knee(path: &Path) -> Result<std::time::Duration> {
    let name = path.display();
    let profile = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    match Policy::auto(&profile).with_context(|| format!("{name} cannot be used"))? {
        Policy::Interval { max_age, .. } => Ok(max_age),
        other => bail!("{name} says {other:?}, which is no interval"),
    }
}

/// What an acknowledgement survives, and where that is not what was asked for, who says why.
fn survives(promise: Promise, memory: &Path) -> String {
    let kernel = "is with the kernel: a crash of this process loses nothing";
    match promise {
        Promise::Memory => {
            "is in memory that outlives this process: a crash of it loses nothing".to_owned()
        }
        Promise::Kernel if memory == Path::new(NO_MEMORY) => kernel.to_owned(),
        Promise::Kernel => format!(
            "{kernel} (each waits for that, as {memory} cannot have the rings: plimsoll broker doctor \
             looks why)",
            memory = memory.display()
        ),
    }
}

/// What an acknowledgement is worth: of one broker, or of several.
fn worth(promise: Promise, config: &Config) -> String {
    let (survives, risk) = (survives(promise, &config.memory), risk(config.flush));
    if config.node.is_none() {
        return format!("an acknowledged record {survives}; a power cut may take {risk}");
    }
    format!(
        "an acknowledged record is with a majority of the brokers that have it, and here it {survives}; a power cut of fewer than a majority takes \
         nothing, one of a majority may take {risk}, and that it may have is said (plimsoll cluster status)"
    )
}

/// What a power cut may take of what was acknowledged.
fn risk(flush: Policy) -> String {
    match flush {
        Policy::Interval { max_age, .. } => {
            let age = humantime::format_duration(max_age);
            format!("those of the last {age}, and at most of twice that")
        }
        Policy::Never => "all since a segment was full".to_owned(),
        Policy::Always => "none of them".to_owned(),
    }
}

/// What it is, what an acknowledgement survives, and what to try.
fn say_where(node: &Node, config: &Config, listener: &Listener, http: Option<&Http>) -> Result<()> {
    let address = listener.address().context("the address is gone")?;
    let whose = config.node.map(|node| format!(", node {node} of a cluster")).unwrap_or_default();
    output::news(&format!(
        "plimsoll serves Kafka's clients on {address}, data in {dir}{whose}
{worth}
of the last run: {verdict}
a topic with flush.messages=1 acknowledges what is durable: a power cut takes nothing of it
try: kcat -b {address} -t first -P   (then type lines)
     kcat -b {address} -t first -C
     plimsoll topic list --broker {address}",
        dir = node.dir().display(),
        worth = worth(node.promise(), config),
        verdict = node.verdict(),
    ));
    if config.node.is_some() && config.rack.is_none() && !config.allow_one_domain {
        output::news(
            "no rack is given (--rack): whether one power cut takes several brokers is not known, and if it does, what \
             is acknowledged from memory is worth nothing; --allow-one-domain says that this is fine",
        );
    }
    if let Some(http) = http {
        let address = http.address().context("the address is gone")?;
        output::news(&format!("status page, health and metrics: http://{address}/"));
        if config.node.is_some() {
            output::news(&format!(
                "which brokers are there, and which are awaited: plimsoll cluster status --http {address}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients were told `[::1]`, which is a host to none of them.
    #[test]
    fn clients_are_told_an_address_without_its_brackets() {
        let told = |text| host_and_port(text).ok();
        assert_eq!(told("[::1]:9092"), Some(("::1".to_owned(), 9092)));
        assert_eq!(told("broker.example:9092"), Some(("broker.example".to_owned(), 9092)));
        for wrong in ["9092", ":9092", "broker:", "broker:99999"] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
    }
}
