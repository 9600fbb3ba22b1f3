//! The priority of the attackers' threads. On one machine they share its cores with the service and the normal client: at
//! equal priority their own work, which in reality is done elsewhere, would be measured as the service's delay.

/// How much lower the priority of attackers is: the lowest, because the service itself gives its photos a lower one than its
/// requests, and photos would share the cores with attackers of the same.
const NICENESS: i32 = 19;

/// Runs `attack` on a thread of a lower priority, which the threads that it starts inherit.
///
/// # Panics
/// When `attack` panics.
pub fn run_at_low_priority(attack: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let attackers = scope.spawn(|| {
            // On Linux the priority is the calling thread's own. A lower one is always permitted.
            if let Err(error) = rustix::process::nice(NICENESS) {
                eprintln!("the attackers have the priority of the service: {error}");
            }
            attack();
        });
        if let Err(panic) = attackers.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_attackers_and_their_threads_have_a_lower_priority() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let mut inherited = before;
        run_at_low_priority(|| {
            inherited = std::thread::scope(|scope| scope.spawn(priority).join().unwrap());
        });
        assert_eq!((priority(), inherited), (before, (before + NICENESS).min(19)));
    }
}
