//! The devices on which selfies can be examined, of which one is used at a time: the next one where it fails. It knows nothing
//! of threads.

use std::sync::Arc;
use std::time::Duration;

use photofinish_models::traits::ModelFactory;

use crate::engine::device::{Work, name_device, show_lost, show_usable};
use crate::engine::fault::Outage;

/// After so many failures in a row that a device caused, over some 15 s, only another process has it back, as for the
/// pipeline.
const MAX_OUTAGES: u32 = 8;

/// The devices of a process.
pub(super) struct ProbeDevices {
    devices: Vec<ProbeDevice>,
    /// The one whose turn it is.
    current: usize,
}

struct ProbeDevice {
    name: String,
    models: Arc<dyn ModelFactory>,
    /// Consecutive failures of the models that it caused.
    outages: u32,
    /// Why only another process has it back.
    failure: Option<String>,
}

impl ProbeDevices {
    /// The devices of these models, of which the first is used first.
    pub(super) fn new(models: Vec<Arc<dyn ModelFactory>>) -> Self {
        let device = |(number, models): (usize, Arc<dyn ModelFactory>)| {
            let device =
                ProbeDevice { name: name_device(&*models, number), models, outages: 0, failure: None };
            show_usable(&device.name, Work::Selfies);
            device
        };
        Self { devices: models.into_iter().enumerate().map(device).collect(), current: 0 }
    }

    /// Loads the models on the device whose turn it is; `None` where there is no device at all.
    pub(super) fn models(&self) -> Option<Arc<dyn ModelFactory>> {
        Some(Arc::clone(&self.current()?.models))
    }

    /// Whether the latest failure of the models was caused by that device.
    pub(super) fn is_suspect(&self) -> bool {
        self.current().is_some_and(|device| device.outages > 0)
    }

    /// How many devices are left.
    pub(super) fn count(&self) -> usize {
        self.devices.iter().filter(|device| device.failure.is_none()).count()
    }

    /// Returns why this process cannot use its devices any more, once none is left.
    pub(super) fn failure(&self) -> Option<&str> {
        if self.count() > 0 {
            return None;
        }
        self.current()?.failure.as_deref()
    }

    /// For how long the oldest call of the device whose turn it is has been running.
    pub(super) fn longest_call(&self) -> Option<Duration> {
        self.current()?.models.longest_device_call()
    }

    /// For how long the oldest call of any device has been running.
    pub(super) fn longest_call_of_all(&self) -> Option<Duration> {
        self.devices.iter().filter_map(|device| device.models.longest_device_call()).max()
    }

    /// Goes on to the next device that is left, if there is another.
    pub(super) fn advance(&mut self) {
        let (current, count) = (self.current, self.devices.len());
        let mut others = (1..count).map(|offset| (current + offset) % count);
        if let Some(next) = others.find(|index| self.devices[*index].failure.is_none()) {
            self.current = next;
        }
    }

    /// Records that the models were loaded.
    pub(super) fn record_success(&mut self) {
        if let Some(device) = self.devices.get_mut(self.current) {
            device.outages = 0;
        }
    }

    /// Counts failures of the models that the device caused, and gives it up after too many.
    pub(super) fn record_outage(&mut self, outage: &Outage) {
        let Some(device) = self.devices.get_mut(self.current) else { return };
        device.outages = if outage.is_of_device() { device.outages + 1 } else { 0 };
        if device.outages >= MAX_OUTAGES {
            self.give_up(outage.to_string());
        }
    }

    /// Gives up the device whose turn it is.
    pub(super) fn give_up(&mut self, reason: String) {
        let Some(device) = self.devices.get_mut(self.current) else { return };
        let name = device.name.clone();
        show_lost(&name, Work::Selfies);
        // The first reason is kept.
        let reason = device.failure.get_or_insert(reason).clone();
        if self.count() > 0 {
            tracing::error!(
                device = name,
                reason,
                "selfies no longer use this device; only another process can"
            );
        }
    }

    /// Gives all devices up.
    pub(super) fn give_all_up(&mut self, reason: &str) {
        for device in &mut self.devices {
            show_lost(&device.name, Work::Selfies);
            device.failure.get_or_insert_with(|| reason.to_owned());
        }
    }

    fn current(&self) -> Option<&ProbeDevice> {
        self.devices.get(self.current)
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use photofinish_models::fakes::FakeModels;
    use photofinish_models::traits::ModelError;

    use super::*;

    fn devices(count: usize) -> ProbeDevices {
        ProbeDevices::new(
            (0..count).map(|_| Arc::new(FakeModels::default()) as Arc<dyn ModelFactory>).collect(),
        )
    }

    fn lost() -> Outage {
        Outage::from(ModelError::Device { device: "cuda".into(), detail: "lost".into() })
    }

    /// Which devices have the next turns.
    fn turns(devices: &mut ProbeDevices) -> [usize; 4] {
        std::array::from_fn(|_| {
            devices.advance();
            devices.current
        })
    }

    #[test]
    fn only_failures_in_a_row_that_the_device_caused_give_it_up() {
        let mut devices = devices(1);
        let damaged = Outage::from(ModelError::File { name: "net".into(), detail: "damaged".into() });
        for _ in 0..3 {
            (1..MAX_OUTAGES).for_each(|_| devices.record_outage(&lost()));
            assert!(devices.is_suspect());
            devices.record_outage(&damaged);
            (1..MAX_OUTAGES).for_each(|_| devices.record_outage(&lost()));
            devices.record_success();
            assert!(!devices.is_suspect());
        }
        assert_eq!((devices.count(), devices.failure()), (1, None));
        (0..MAX_OUTAGES).for_each(|_| devices.record_outage(&lost()));
        let reason = devices.failure().unwrap();
        assert!(reason.contains("device cuda: lost"), "{reason}");
    }

    #[test]
    fn devices_take_turns_until_they_are_given_up() {
        let mut devices = devices(3);
        assert_eq!(turns(&mut devices), [1, 2, 0, 1]);
        devices.give_up("it hangs".into());
        assert_eq!((turns(&mut devices), devices.count()), ([2, 0, 2, 0], 2));
        // Failures of one device are not those of another.
        for _ in 1..MAX_OUTAGES {
            devices.record_outage(&lost());
            devices.advance();
            devices.record_outage(&lost());
            devices.advance();
        }
        assert_eq!((devices.count(), devices.current), (2, 0));
        devices.record_outage(&lost());
        assert_eq!((turns(&mut devices), devices.failure()), ([2, 2, 2, 2], None));
        devices.record_outage(&lost());
        assert_eq!(devices.count(), 0);
        assert!(devices.failure().unwrap().contains("device cuda: lost"));
    }

    #[test]
    fn an_alert_sees_which_device_selfies_have_lost() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let shows = |device: u32, lost: u32| {
            let line =
                format!("photofinish_device_lost{{device=\"device {device}\",work=\"selfies\"}} {lost}");
            let page = recorder.handle().render();
            assert!(page.lines().any(|shown| shown == line), "no {line} in {page}");
        };
        metrics::with_local_recorder(&recorder, || {
            let mut devices = devices(2);
            shows(0, 0);
            devices.give_up("it hangs".into());
            shows(0, 1);
            shows(1, 0);
        });
    }

    #[test]
    fn without_devices_nothing_is_loaded_and_nothing_fails() {
        let mut devices = devices(0);
        devices.advance();
        devices.record_outage(&lost());
        assert!(devices.models().is_none() && devices.longest_call().is_none());
        assert_eq!((devices.count(), devices.failure()), (0, None));
    }
}
