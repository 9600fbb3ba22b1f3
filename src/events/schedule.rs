//! When a delivery is attempted again.

use std::time::Duration;

/// Pauses after each attempt but the last: nine attempts within a day.
const PAUSES: [Duration; 8] = [
    Duration::from_secs(5),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(5 * 3600),
    Duration::from_secs(8 * 3600),
    Duration::from_secs(8 * 3600),
];

/// The share by which a pause is longer or shorter at most, so that what failed together is not attempted together again.
const JITTER: f64 = 0.1;

/// The longest time that a receiver may ask to be left alone.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Returns the pause after an attempt (from 1) that failed; `None` after the last. `random` is from 0 to 1, `retry_after` what
/// the receiver asked for.
pub fn pause_after(attempt: u32, random: f64, retry_after: Option<Duration>) -> Option<Duration> {
    let pause = PAUSES.get(attempt.checked_sub(1)? as usize)?;
    let pause = pause.mul_f64(1.0 + JITTER * (2.0 * random.clamp(0.0, 1.0) - 1.0));
    Some(pause.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_attempts_take_a_day_within_a_tenth() {
        let all =
            |random: f64| -> Duration { (1..).map_while(|attempt| pause_after(attempt, random, None)).sum() };
        let hours = |hours: f64| Duration::from_secs_f64(hours * 3600.0);
        let middle = all(0.5);
        assert!(middle > hours(23.5) && middle < hours(24.0), "{middle:?}");
        assert_eq!((1..).map_while(|attempt| pause_after(attempt, 0.0, None)).count(), 8);
        let (least, most) = (all(0.0).as_secs_f64(), all(1.0).as_secs_f64());
        assert!(
            (least / middle.as_secs_f64() - 0.9).abs() < 1e-6
                && (most / middle.as_secs_f64() - 1.1).abs() < 1e-6
        );
    }

    #[test]
    fn a_receiver_may_ask_for_an_hour() {
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pause_after(1, 0.5, asked(40)), asked(40));
        assert_eq!(pause_after(1, 0.5, asked(1)), asked(5), "the schedule is longer");
        assert_eq!(pause_after(1, 0.5, asked(86_400)), asked(3600));
        assert_eq!(pause_after(9, 0.5, asked(40)), None);
    }
}
