//! The operations of the console alone: sessions, accounts, keys, and what the service does. They are in no partner document.

use crate::handlers::console::{accounts, invitations, keys, operator, pipeline, sessions};
use crate::handlers::credits;
use crate::operation::Operation;
use crate::operation::info::{manage, read};

/// Returns the operations of the console that partners do not have.
pub(crate) fn console_operations() -> Vec<Operation> {
    vec![
        Operation::new_public(manage("session.create", "Sign in", ""), sessions::create),
        Operation::new(read("session.get", "Get the session", ""), sessions::get),
        Operation::new_public(manage("session.delete", "Sign out", ""), sessions::delete),
        Operation::new(read("sessions.list", "List the sessions of the account", ""), sessions::list),
        Operation::new(manage("sessions.end", "End a session", ""), sessions::end),
        Operation::new_public(read("invitation.get", "Get an invitation", ""), invitations::get),
        Operation::new_public(manage("invitation.accept", "Accept an invitation", ""), invitations::accept),
        Operation::new(manage("account.update", "Change the own account", ""), accounts::update_own),
        Operation::new(read("accounts.list", "List accounts", ""), accounts::list),
        Operation::new(manage("accounts.invite", "Invite a person", ""), accounts::invite),
        Operation::new(manage("accounts.reset", "Let a person choose another password", ""), accounts::reset),
        Operation::new(manage("accounts.update", "Change an account", ""), accounts::update),
        Operation::new(manage("keys.create", "Create a key", ""), keys::create),
        Operation::new(read("keys.list", "List keys", ""), keys::list),
        Operation::new(manage("keys.revoke", "Revoke a key", ""), keys::revoke),
        Operation::new(read("pipeline.get", "Get what the pipeline does", ""), pipeline::get)
            .with_events(pipeline::stream),
        Operation::new(
            manage("usage.dearest", "Get the dearest photos of an album", ""),
            credits::get_dearest,
        ),
        Operation::new(read("operator.get", "Get the health of the service", ""), operator::get),
        Operation::new(manage("operator.credits.grant", "Grant credits", ""), operator::grant),
    ]
}
