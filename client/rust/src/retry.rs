//! The service config's retry policy, which tonic does not read.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

include!("generated/retry_policy.rs");

/// Returns the wait before retry number `attempt` (the first is 1). gRPC's rule for this wait is a growing backoff,
/// times a random factor of 0.8 to 1.2.
pub(crate) fn backoff(attempt: u32) -> Duration {
    let grown = INITIAL_BACKOFF.mul_f64(BACKOFF_MULTIPLIER.powi(attempt as i32 - 1));
    let share = random() as f64 / u64::MAX as f64;
    grown.min(MAX_BACKOFF).mul_f64(0.8 + 0.4 * share)
}

/// Returns a random number, for waits and for names. RandomState is seeded with random numbers of the system.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::time::SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_are_those_of_the_service_config() {
        assert_eq!(MAX_ATTEMPTS, 4);
        for (attempt, seconds) in [(1, 0.1), (2, 0.2), (3, 0.4), (9, 1.0)] {
            let waits = backoff(attempt).as_secs_f64();
            assert!((0.79 * seconds..1.21 * seconds).contains(&waits), "{attempt}: {waits}");
        }
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random(), random());
    }
}
