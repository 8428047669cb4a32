import Foundation
import TestSupport
import Testing

/// The manual's commands for slots, in order, on a vault made by `vaultfs init`.
@Suite(.timeLimit(.minutes(60))) struct ManualCommandTests {
    @Test("the commands for slots work in order")
    func slots() throws {
        let home = try TemporaryDirectory()
        // These files stand in for the person who types: the owner's secret, and another for an expiring slot.
        try home.write("owner", "correct horse")
        try home.write("guest", "battery staple")
        let vault = home.appending("Vault")
        try Command([Products.binary, "init", vault, "--scrypt-logn", "10", "--passfile", home.appending("owner")])
            .run()
            .succeeded()
        try FileManager.default.createDirectory(atPath: home.appending("stick"), withIntermediateDirectories: false)
        let functions = """
            vaultfs() {
                set -- "$@" --passfile ~/owner
                case " $2 $* " in
                    *" --new-"* | " list "* | " remove "*) ;;
                    *" --expires "*) set -- "$@" --new-passfile ~/guest ;;
                    *) set -- "$@" --new-passfile ~/owner ;;
                esac
                "$BINARY" "$@"
            }
            """
        let block = try Products.manualBlock("Keys", with: "vaultfs slot add")
        let script = "set -e\n" + functions + "\n" + block.replacing("/media/stick", with: home.appending("stick"))
        // This takes long, because several keys are derived at full cost.
        try Command(
            ["sh", "-c", script], environment: ["HOME": home.path, "BINARY": Products.binary], timeout: .seconds(300)
        ).run().succeeded()
        let list = try Command([Products.binary, "slot", "list", vault, "--json"]).run().succeeded().fields()
        let slots = try #require(list["slots"] as? [[String: Any]])
        #expect(slots.compactMap { $0["id"] as? Int } == [1, 2, 4, 5])
        #expect(slots[1]["kind"] as? String == "recovery")
    }
}
