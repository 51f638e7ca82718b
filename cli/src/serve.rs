//! `lessor serve`: reads the configuration, listens, prints its address, and runs the allocator until it is told to
//! stop.

use crate::args::ServeArgs;
use crate::configuration;
use crate::descriptors;
use crate::failure::Failure;
#[cfg(not(feature = "otlp"))]
use crate::logging;
use crate::runtime;
use crate::stop::{self, Stop};
use crate::watch::Watch;
use lessor_allocator::config::{AdminConfig, Listen};
use lessor_allocator::{Listener, Server};
use sd_notify::NotifyState;
use std::io::Write as _;
use tokio::runtime::Builder;
use tokio::signal::unix::SignalKind;
use tracing_subscriber::EnvFilter;

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let filter = EnvFilter::new(&args.log_level);
    #[cfg(feature = "otlp")]
    let _spans = crate::otlp::install(args.otlp.as_deref(), args.log, filter)?;
    #[cfg(not(feature = "otlp"))]
    logging::install(args.log, filter);
    let text = configuration::text(&args.config)?;
    let mut config = configuration::of_allocator(&args.config, &text)?;
    configuration::unlock_store(&mut config, &args.config)?;
    let descriptors = descriptors::raise();
    stop::end_in_time()?;
    let runtime = runtime::start(&mut Builder::new_multi_thread())?;
    let ran = runtime.block_on(async {
        // SIGHUP would kill, too, and a store may take a while to open.
        let (mut stop, hangup) = (Stop::install()?, stop::listen(SignalKind::hangup())?);
        let listen = args.listen.clone().unwrap_or_else(|| config.server.listen.clone());
        let cannot = |error| Failure::Run(format!("cannot listen on {listen}: {error}"));
        let listener = lessor_allocator::listen(&listen).map_err(cannot)?;
        configuration::is_closed(&config, &listen)?;
        let admin = config.admin.as_ref().map(listen_apart).transpose()?;
        let scheme = if config.server.tls.is_some() { "https" } else { "http" };
        let server = Server::open(config, args.fresh).map_err(|error| Failure::Input(error.to_string()))?;
        let server = server.with_descriptors(descriptors);
        let watch = Watch::new(args.config.clone(), text, server.reloads(), hangup);
        // Announced last: a signal that comes after the announcement must not be lost, nor kill.
        announce(&listener, scheme, admin.as_ref()).map_err(cannot)?;
        tell_manager(NotifyState::Ready);
        // The watch ends with the server, whatever it is waiting for.
        let ran = tokio::select! {
            ran = server.run_apart(listener, admin.map(|(listener, _)| listener), async move {
                stop.asked().await;
                tell_manager(NotifyState::Stopping);
            }) => ran,
            () = watch.run() => Ok(()),
        };
        ran.map_err(|error| Failure::Run(format!("the allocator failed: {error}")))
    });
    // A read of the configuration from a disk that hangs is not waited for.
    runtime.shutdown_background();
    ran
}

/// Opens the listener for operators, and returns it with its scheme.
fn listen_apart(admin: &AdminConfig) -> Result<(Listener, &'static str), Failure> {
    let cannot = |error| Failure::Run(format!("cannot listen on {} for operators: {error}", admin.listen));
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    Ok((lessor_allocator::listen(&admin.listen).map_err(cannot)?, scheme))
}

/// Tells the service manager the state of this process. Without a manager it does nothing.
fn tell_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// Prints the address on stdout, and another line if there is an address for operators. No log filter hides the line:
/// with port 0 it is the only way to learn the address.
fn announce(listener: &Listener, scheme: &str, admin: Option<&(Listener, &str)>) -> std::io::Result<()> {
    let mut said = format!("listening on {}\n", url(scheme, &listener.place()?));
    if let Some((admin, scheme)) = admin {
        said.push_str(&format!("listening for operators on {}\n", url(scheme, &admin.place()?)));
    }
    // The line needs no reader: a closed stdout is no reason not to serve.
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(said.as_bytes()).and_then(|()| stdout.flush());
    Ok(())
}

/// Returns the URL by which a client finds the listener.
fn url(scheme: &str, listen: &Listen) -> String {
    match listen {
        Listen::Address(address) => format!("{scheme}://{address}"),
        Listen::Unix(_) => listen.to_string(),
    }
}
