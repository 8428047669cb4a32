import Foundation
import TestSupport

/// Security keys in software, and fido2-tools programs for them (Tests/Support/Programs/commands/security_key.py).
struct SecurityKeys {
    static let first = "/dev/hidraw7"
    static let second = "/dev/hidraw8"

    /// The programs' directory, for `PATH`.
    let programs: String
    private let state: String

    init(in place: SlotPlace) throws {
        programs = place.file("programs")
        state = place.file("keys.json")
        // Another process writes the scripts, because another test's child would inherit our descriptor for writing,
        // and the scripts could not be executed (ETXTBSY).
        let write = """
            mkdir "$1"
            for name in fido2-token fido2-cred fido2-assert; do
                printf '#!/bin/sh\\nexec "%s" "%s" "%s" %s "$@"\\n' "$2" "$3" "$4" $name >"$1/$name"
                chmod 755 "$1/$name"
            done
            """
        let names = [programs, Products.python, Products.program("commands/security_key.py"), state]
        try Command(["sh", "-ec", write, "sh"] + names).run().succeeded()
    }

    /// Plugs in exactly these keys. Each has a list of fields with other values than those of a key without a PIN.
    func plug(_ keys: [String: [String: Any]]) throws {
        let all = keys.mapValues { fields in
            ["secret": "first", "pin": NSNull(), "extensions": ["credProtect", "hmac-secret"]].merging(fields) { $1 }
        }
        try JSONSerialization.data(withJSONObject: all).write(to: URL(fileURLWithPath: state))
    }
}
