//! The texts of the scripts, put together from the files in `scripts/`. The tests include this file,
//! too.

macro_rules! scripts {
    ($($name:ident $text:ident = $($part:literal)+;)+) => {
        $(pub(crate) const $text: &str =
            concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+);)+

        /// All of them, by their names.
        #[cfg(test)]
        #[allow(dead_code, reason = "only some of the tests use it")]
        pub(crate) const ALL: &[(&str, &str)] = &[$((stringify!($name), $text)),+];
    };
}

/// The scripts for mutexes and elections.
pub(crate) mod exclusive {
    scripts! {
        acquire ACQUIRE = "exclusive/acquire_free" "clock" "token" "queue" "places" "exclusive/hand_over"
            "exclusive/acquire";
        extend EXTEND = "touch" "exclusive/extend";
        release RELEASE = "exclusive/release_free" "clock" "token" "queue" "exclusive/hand_over"
            "exclusive/release";
        refresh REFRESH = "clock" "token" "queue" "places" "exclusive/hand_over" "exclusive/refresh";
        inspect INSPECT = "clock" "exclusive/inspect";
        force_release FORCE_RELEASE = "clock" "token" "queue" "exclusive/hand_over" "exclusive/force_release";
        raise_token RAISE_TOKEN = "clock" "token" "touch" "exclusive/raise_token";
        batch BATCH = "exclusive/batch";
        resume RESUME = "clock" "token" "touch" "exclusive/resume";
        transfer TRANSFER = "exclusive/transfer_free" "clock" "token" "queue" "exclusive/hand_over" "exclusive/transfer";
        write_note WRITE_NOTE = "clock" "exclusive/write_note";
        read_note READ_NOTE = "exclusive/read_note";
    }
}

/// The scripts for readers, writers and permits.
pub(crate) mod counted {
    scripts! {
        acquire ACQUIRE = "counted/grant" "counted/acquire_free" "clock" "token" "queue" "places"
            "counted/hand_over" "counted/acquire";
        extend EXTEND = "clock" "token" "queue" "counted/hand_over" "counted/extend";
        release RELEASE = "counted/give_back" "counted/release_free" "clock" "token" "queue" "counted/hand_over"
            "counted/release";
        refresh REFRESH = "clock" "token" "queue" "places" "counted/hand_over" "counted/refresh";
        inspect INSPECT = "clock" "token" "counted/inspect";
        force_release FORCE_RELEASE = "clock" "token" "queue" "counted/hand_over" "counted/force_release";
        raise_token RAISE_TOKEN = "clock" "token" "queue" "counted/hand_over" "counted/raise_token";
        batch BATCH = "counted/grant" "counted/give_back" "counted/batch";
        resume RESUME = "clock" "token" "queue" "counted/hand_over" "counted/resume";
    }
}
