import Foundation
import TestSupport
import Testing

/// Changes to slots allowed with the secret of an expiring slot (FileFormat, Leases).
@Suite(.timeLimit(.minutes(60))) struct SlotAuthorityTests {
    private let place: SlotPlace
    /// The options to open the vault with slot 2, which expires.
    private let leased: [String]
    private let new: [String]

    init() throws {
        place = try SlotPlace()
        try place.directory.write("leased", String(repeating: "l", count: 40), mode: 0o600)
        leased = ["--keyfile", place.file("leased")]
        new = ["--new-keyfile", place.file("keyfile")]
    }

    private func lease(_ options: [String]) throws {
        try place.slot("add", place.opening + ["--new-keyfile", place.file("leased")] + options).succeeded()
    }

    private func refused(_ action: String, _ options: [String]) throws {
        for options in [options, action == "add" ? nil : options + ["--force"]].compactMap({ $0 }) {
            try place.expectRefusal(4, "the secret is that of slot 2, which expires") {
                try place.slot(action, leased + options)
            }
        }
    }

    @Test(
        "a secret that ends makes nothing that may end later",
        arguments: [["--expires", "30d"], ["--play-window", "30d"], ["--expires", "30d", "--play-window", "40d"]])
    func secretThatEndsMakesNothing(limits: [String]) throws {
        try lease(limits)
        for options in [
            [], ["--expires", "31d"], ["--play-window", "1h"], ["--expires", "31d", "--play-window", "1h"],
        ] {
            try refused("add", new + options)
        }
        try refused("change", ["--keep-secret", "--play-window", "none", "--expires", "31d"])
        for options in [["--expires", "never"], ["--play-window", "none"]] where limits[0] == options[0] {
            try refused(
                "change", ["--keep-secret", "--play-window", "41d"] + (limits[0] == "--expires" ? options : []))
            if limits.count == 2 { try refused("change", ["--keep-secret"] + options) }
        }
        try refused("change", ["1", "--expires", "1h"] + new)
        try refused("change", ["1"] + new)
        try refused("remove", ["1"])
        try refused("remove", ["1", "2"])
        try place.slot("add", place.opening + new).succeeded()
        try refused("remove", ["3"])
    }

    @Test("nor does it rekey, which would take the others away")
    func norDoesItRekey() throws {
        try lease(["--expires", "30d"])
        for options in [["--yes"], ["--yes", "--force"]] {
            let before = try place.configuration
            let result = try place.run(["rekey", place.vault] + leased + options)
            #expect(result.exitCode == 4)
            #expect(result.errors.hasPrefix("vaultfs: the secret is that of slot 2, which expires"))
            #expect(try place.configuration == before)
        }
    }

    @Test("it may do what ends with it or before, and change its own secret")
    func itMayDoWhatEnds() throws {
        try lease(["--expires", "30d"])
        try place.slot("add", leased + new + ["--expires", "29d"]).succeeded()
        try place.slot("add", leased + new + ["--expires", "29d", "--play-window", "100d"]).succeeded()
        try place.slot("remove", leased + ["3"]).succeeded()
        try place.slot("change", leased + ["4", "--expires", "28d"] + new).succeeded()
        try place.slot("change", leased + ["--keep-secret", "--label", "mine"]).succeeded()
        try place.slot("change", leased + ["--keep-secret", "--expires", "20d"]).succeeded()
        try refused("change", ["--keep-secret", "--expires", "21d"])
        try place.slot("change", leased + new + ["--play-window", "1h"]).succeeded()
        try place.slot("remove", ["--keyfile", place.file("keyfile"), "2"]).succeeded()
        #expect(try place.slots().compactMap { $0["id"] as? Int } == [1, 4])
    }

    @Test("with a window that has not begun no slot is made, one after the other, for ever")
    func withWindow() throws {
        try lease(["--play-window", "1h"])
        try place.slot("add", place.opening + new + ["--expires", "1min"]).succeeded()
        for limits in [
            ["--expires", "1min"], ["--play-window", "1min"], ["--expires", "1min", "--play-window", "1min"],
        ] {
            try refused("add", new + limits)
            try refused("change", ["3"] + new + limits)
        }
        try place.run(["export", place.vault, place.file("out")] + leased).succeeded()
        try place.slot("add", leased + ["--new-passfile", place.file("new"), "--expires", "1min"]).succeeded()
    }

    @Test("a slot with a window that was not started keeps it when its secret is changed")
    func slotWithWindow() throws {
        try lease(["--play-window", "30d"])
        try place.slot("change", leased + new + ["--label", "mine"]).succeeded()
        #expect(try place.slots()[1]["window"] != nil)
    }

    @Test("it is renewed with a secret that has no end, and its own anew")
    func itIsRenewedWithSecret() throws {
        try lease(["--expires", "1d"])
        try place.slot(
            "change", place.opening + ["2", "--new-keyfile", place.file("leased"), "--expires", "60d"]
        ).succeeded()
        #expect(try place.opens(leased))
        try place.slot("change", place.opening + ["2", "--play-window", "2d"]).succeeded()
        #expect(try place.opens(leased))
    }
}
