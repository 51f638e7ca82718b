//! What a user would pick instead, on one hot limit that never runs short. A number of callers, each with its own
//! connection, decide each call at a Redis, a PostgreSQL or an nginx. Beside them, the same callers are nodes of an
//! allocator, each with a lease. Each row shares the machine only with the server that it calls.

mod nginx;

use crate::sample::median;
use lessor_allocator::cells::StoreKind;
use lessor_allocator::cells::private::{PrivateServer, is_installed};
use lessor_allocator::{Config, Server};
use lessor_protocol::CLOCK;
use nginx::Nginx;
use redis::aio::MultiplexedConnection;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Barrier;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio_postgres::error::SqlState;
use tokio_postgres::{NoTls, Statement};

/// Concurrent callers, in the place of as many processes.
const CALLERS: usize = 16;

/// Leased checks between two readings of the clock, which cost more than a check.
const CHECKS: u32 = 1_000;

/// More permits than all callers can take.
const LIMIT: u64 = 1_000_000_000;

/// A counter for each second.
const REDIS_INCR: &str = "a counter of each second: `INCR`";

/// A token bucket: the tokens, and when they were last counted by the server's clock.
const TOKEN_BUCKET: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local limit = tonumber(ARGV[1])
local known = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(known[1]) or limit, tonumber(known[2]) or now
tokens = math.min(limit, tokens + (now - at) * limit / 1000000)
local admitted = 0
if tokens >= 1 then
    tokens, admitted = tokens - 1, 1
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', now)
redis.call('PEXPIRE', KEYS[1], 2000)
return admitted
";

/// A sorted set with an entry for each call of the last second.
const SORTED_SET: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - 1000000)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('ZADD', KEYS[1], now, now .. ':' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], 2000)
return 1
";

const TABLES: &str = "
CREATE TABLE hits (name text, second bigint, calls bigint NOT NULL, PRIMARY KEY (name, second));
CREATE TABLE buckets (name text PRIMARY KEY, tokens double precision NOT NULL, at timestamptz NOT NULL);
INSERT INTO buckets VALUES ('hot', 1000000000, now());
";

const UPSERT: &str = "
INSERT INTO hits VALUES ('hot', extract(epoch FROM now())::bigint, 1)
ON CONFLICT (name, second) DO UPDATE SET calls = hits.calls + 1 RETURNING calls
";

const LOCK: &str = "
SELECT least(1e9, tokens + extract(epoch FROM now() - at) * 1e9)::double precision
FROM buckets WHERE name = 'hot' FOR UPDATE NOWAIT
";

const TAKE: &str = "UPDATE buckets SET tokens = $1, at = now() WHERE name = 'hot'";

type Failed = Box<dyn Error + Send + Sync>;

/// The result of one row.
struct Figures {
    decisions_per_second: f64,
    /// Microseconds of a decision, in the median.
    micros: f64,
}

/// Measures each row for `seconds`, and prints it as soon as it is known.
pub(crate) fn print(seconds: u64) -> Result<(), Box<dyn Error>> {
    rows(seconds).map_err(|error| -> Box<dyn Error> { error })
}

fn rows(seconds: u64) -> Result<(), Failed> {
    let lasts = Duration::from_secs(seconds);
    println!("| {CALLERS} callers of one limit | decisions/s | median µs | ratio to leases |");
    println!("|---|---:|---:|---:|");
    let leased = leased(lasts)?;
    let show = |name: &str, figures: &Figures| {
        let Figures { decisions_per_second, micros } = figures;
        let part = decisions_per_second / leased.decisions_per_second;
        println!("| {name} | {decisions_per_second:.0} | {micros:.3} | {part:.6} |");
    };
    show("a lease: `try_acquire`", &leased);
    if is_installed(StoreKind::Redis) {
        show(&format!("Redis, {REDIS_INCR}"), &redis(lasts, async |line, _| incr(line).await)?);
        let by_script = |script: &'static str| {
            redis(lasts, async move |line: &mut Line, number: u64| evaluate(line, script, number).await)
        };
        show("Redis, a token bucket in Lua", &by_script(TOKEN_BUCKET)?);
        show("Redis, a log in a sorted set, in Lua", &by_script(SORTED_SET)?);
    } else {
        println!("| Redis is not installed: `apt-get install redis-server` | | | |");
    }
    if is_installed(StoreKind::Postgres) {
        let folder = tempfile::tempdir()?;
        let server = PrivateServer::start(StoreKind::Postgres, folder.path(), &[])?;
        let sql = Sql::at(&server)?;
        show(
            "PostgreSQL, `INSERT … ON CONFLICT DO UPDATE`",
            &race(lasts, async || sql.open().await, Session::upsert)?,
        );
        show(
            "PostgreSQL, `FOR UPDATE NOWAIT`, tried again until locked",
            &race(lasts, async || sql.open().await, Session::lock)?,
        );
    } else {
        println!("| PostgreSQL is not installed: `apt-get install postgresql` | | | |");
    }
    match Nginx::start()? {
        Some(nginx) => {
            let address = nginx.address();
            show(
                "nginx, `limit_req`",
                &race(lasts, async || Ok(TcpStream::connect(address)?), async |line, _| get(line))?,
            );
        }
        None => println!("| nginx is not installed: `apt-get install nginx-light` | | | |"),
    }
    Ok(())
}

/// Connects each caller, which then decides again and again while `lasts` runs. `decide` returns how many calls were
/// admitted.
fn race<C>(
    lasts: Duration,
    connect: impl AsyncFn() -> Result<C, Failed> + Sync,
    decide: impl AsyncFn(&mut C, u64) -> Result<u32, Failed> + Sync,
) -> Result<Figures, Failed> {
    let all_are_there = Barrier::new(CALLERS);
    let caller = |number: u64| {
        let runtime = runtime()?;
        let connected = runtime.block_on(connect());
        all_are_there.wait();
        let mut line = connected?;
        runtime.block_on(async {
            let (mut micros, mut admitted, mut now) = (vec![], 0, CLOCK.now());
            let end = now + lasts;
            while now < end {
                let calls = decide(&mut line, number).await?;
                let done = CLOCK.now();
                micros.push(done.since(now).as_secs_f64() * 1e6 / f64::from(calls.max(1)));
                (now, admitted) = (done, admitted + u64::from(calls));
            }
            Ok::<_, Failed>((micros, admitted))
        })
    };
    let caller = &caller;
    let each = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS as u64).map(|number| scope.spawn(move || caller(number))).collect();
        callers.into_iter().map(|caller| caller.join().expect("no panic")).collect::<Result<Vec<_>, Failed>>()
    });
    let (micros, admitted): (Vec<_>, Vec<_>) = each?.into_iter().unzip();
    let decisions_per_second = admitted.into_iter().sum::<u64>() as f64 / lasts.as_secs_f64();
    Ok(Figures { decisions_per_second, micros: median(micros.concat()) })
}

fn runtime() -> Result<Runtime, Failed> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Measures the callers as nodes of an allocator on loopback.
fn leased(lasts: Duration) -> Result<Figures, Failed> {
    let config = Config::parse(&format!(
        "[store]\nkind = \"memory\"\n[[limit]]\nname = \"hot\"\n\
         rules = [{{ kind = \"token_bucket\", capacity = {LIMIT}, refill = {LIMIT}, per = \"1s\" }}]\n"
    ))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = std::thread::spawn(move || {
        runtime()?.block_on(async {
            let stopped = async { _ = stopped.await };
            Ok::<_, Failed>(Server::new(config, true).run(TcpListener::from_std(listener)?, stopped).await?)
        })
    });
    let connect = async || Ok(lessor::blocking::Client::connect(&url)?);
    let figures = race(lasts, connect, async |client, _| {
        let hot = client.limit("hot");
        Ok((0..CHECKS).map(|_| u32::from(hot.try_acquire(1).is_ok())).sum())
    });
    // The server ends on this signal, or has ended by itself, which the next line reports.
    let _ = stop.send(());
    server.join().expect("no panic")?;
    figures
}

/// A connection to Redis, and the script that was loaded over it.
struct Line {
    connection: MultiplexedConnection,
    loaded: Option<String>,
    calls: u64,
}

fn redis(
    lasts: Duration,
    decide: impl AsyncFn(&mut Line, u64) -> Result<u32, Failed> + Sync,
) -> Result<Figures, Failed> {
    let folder = tempfile::tempdir()?;
    let server = PrivateServer::start(StoreKind::Redis, folder.path(), &[])?;
    let url = server.url();
    let connect = async || {
        let connection = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
        Ok(Line { connection, loaded: None, calls: 0 })
    };
    race(lasts, connect, decide)
}

async fn incr(line: &mut Line) -> Result<u32, Failed> {
    let second = CLOCK.now().as_nanos() / 1_000_000_000;
    let key = format!("hot:{second}");
    let calls: u64 = redis::cmd("INCR").arg(&key).query_async(&mut line.connection).await?;
    if calls == 1 {
        () = redis::cmd("EXPIRE").arg(&key).arg(2).query_async(&mut line.connection).await?;
    }
    Ok(u32::from(calls <= LIMIT))
}

async fn evaluate(line: &mut Line, script: &str, number: u64) -> Result<u32, Failed> {
    let hash = match &line.loaded {
        Some(hash) => hash.clone(),
        None => {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut line.connection).await?;
            line.loaded.insert(load).clone()
        }
    };
    line.calls += 1;
    let call = format!("{number}-{}", line.calls);
    let mut ask = redis::cmd("EVALSHA");
    Ok(ask.arg(hash).arg(1).arg("hot").arg(LIMIT).arg(call).query_async(&mut line.connection).await?)
}

/// A PostgreSQL that has the tables.
struct Sql {
    config: tokio_postgres::Config,
}

/// A connection to it, with its prepared statements.
struct Session {
    client: tokio_postgres::Client,
    upsert: Statement,
    lock: Statement,
    take: Statement,
}

impl Sql {
    fn at(server: &PrivateServer) -> Result<Self, Failed> {
        let sql = Sql { config: server.url().parse()? };
        let made = runtime()?.block_on(async {
            let (client, connection) = sql.config.connect(NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(TABLES).await
        });
        made?;
        Ok(sql)
    }

    async fn open(&self) -> Result<Session, Failed> {
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(connection);
        let (upsert, lock) = (client.prepare(UPSERT).await?, client.prepare(LOCK).await?);
        let take = client.prepare(TAKE).await?;
        Ok(Session { client, upsert, lock, take })
    }
}

impl Session {
    async fn upsert(&mut self, _number: u64) -> Result<u32, Failed> {
        let calls: i64 = self.client.query_one(&self.upsert, &[]).await?.get(0);
        Ok(u32::from(calls.unsigned_abs() <= LIMIT))
    }

    async fn lock(&mut self, _number: u64) -> Result<u32, Failed> {
        loop {
            let transaction = self.client.transaction().await?;
            match transaction.query_one(&self.lock, &[]).await {
                Ok(row) => {
                    transaction.execute(&self.take, &[&(row.get::<_, f64>(0) - 1.0)]).await?;
                    transaction.commit().await?;
                    return Ok(1);
                }
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                    transaction.rollback().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Makes one request over a kept connection.
fn get(line: &mut TcpStream) -> Result<u32, Failed> {
    line.write_all(b"GET / HTTP/1.1\r\nhost: hot\r\n\r\n")?;
    let (mut answer, mut part) = (vec![], [0; 4_096]);
    while !is_whole(&answer)? {
        match line.read(&mut part)? {
            0 => return Err("nginx closed the connection".into()),
            count => answer.extend_from_slice(&part[..count]),
        }
    }
    Ok(u32::from(answer.starts_with(b"HTTP/1.1 200")))
}

fn is_whole(answer: &[u8]) -> Result<bool, Failed> {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
    let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Ok(0), str::parse)?;
    Ok(answer.len() >= head + 4 + length)
}
