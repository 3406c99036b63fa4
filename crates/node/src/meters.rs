//! Reads the node's meters, in a thread of its own: a management controller may take seconds to answer.

use e3_clock::Clock;
use e3_energy::{MeterConfig, Sampler};
use e3_model::meter::MeteredEnergy;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What the meters have measured by now.
#[derive(Clone, Default)]
pub(crate) struct Metered(Arc<Mutex<Option<MeteredEnergy>>>);

impl Metered {
    pub(crate) fn latest(&self) -> Option<MeteredEnergy> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, energy: MeteredEnergy) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(energy);
    }
}

/// The meters of a process. The thread ends when this is dropped.
pub(crate) struct Meters {
    pub(crate) metered: Metered,
    _stop: Sender<()>,
}

impl Meters {
    pub(crate) fn start(config: MeterConfig, clock: Clock) -> io::Result<Meters> {
        let metered = Metered::default();
        let (stop, stopped) = channel();
        let shown = metered.clone();
        thread::Builder::new()
            .name("meters".into())
            .spawn(move || read_until(stopped, config, clock, shown))?;
        Ok(Meters {
            metered,
            _stop: stop,
        })
    }
}

fn read_until(stopped: Receiver<()>, config: MeterConfig, clock: Clock, shown: Metered) {
    let mut sampler = match Sampler::open(config, clock.now()) {
        Ok(Some(sampler)) => sampler,
        Ok(None) => return,
        Err(error) => {
            let fix = error.fix().unwrap_or_default();
            tracing::info!(%error, fix, "no meter is read; energy is modelled only");
            return;
        }
    };
    tracing::info!(meter = sampler.name(), "energy is measured");
    let mut failed = false;
    loop {
        shown.set(sampler.sample(|| clock.now()));
        match sampler.error() {
            Some(error) if !failed => {
                let fix = error.fix().unwrap_or_default();
                tracing::warn!(meter = sampler.name(), %error, fix, "the meter cannot be read");
            }
            None if failed => tracing::info!(meter = sampler.name(), "the meter is read again"),
            _ => {}
        }
        failed = sampler.error().is_some();
        match stopped.recv_timeout(sampler.pause()) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}
