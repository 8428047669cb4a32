import Foundation
import TestSupport
import Testing

/// A vaultfs.json that demands hours of scrypt, through the binary.
@Suite(.timeLimit(.minutes(20))) struct SlotCostTests {
    private let place: SlotPlace

    init() throws { place = try SlotPlace() }

    /// Adds 60 slots that take a minute each. This needs no key.
    private func addCostlySlots() throws {
        var object = try #require(JSONSerialization.jsonObject(with: place.configuration) as? [String: Any])
        let slots = try #require(object["slots"] as? [[String: Any]])
        var costly = try #require(slots.first { $0["kind"] as? String == "passphrase" })
        var kdf = try #require(costly["kdf"] as? [String: Any])
        (kdf["logN"], kdf["p"]) = (20, 16)
        costly["kdf"] = kdf
        object["slots"] = slots + (100..<160).map { id in costly.merging(["id": id]) { $1 } }
        let bytes = try JSONSerialization.data(withJSONObject: object)
        try bytes.write(to: URL(filePath: place.vault + "/vaultfs.json"))
    }

    @Test(
        "every command that opens a slot ends soon, and says what to do",
        arguments: [
            ["verify"], ["slot", "list"], ["slot", "add"], ["slot", "remove"], ["slot", "change"], ["rekey"], ["mount"],
            ["export"], ["import"],
        ]
    )
    func everyCommandThatOpensSlot(command: [String]) throws {
        try addCostlySlots()
        let wrong = try place.directory.write("wrong", "wrong", mode: 0o600)
        let target = place.file("target")
        try FileManager.default.createDirectory(atPath: target, withIntermediateDirectories: true)
        let arguments: [String] =
            switch command.last {
            case "mount", "export": [place.vault, target]
            case "import": [place.file("passfile"), place.vault]
            case "remove": [place.vault, "1"]
            case "add": [place.vault, "--new-passfile", place.file("new")]
            case "change": [place.vault, "--keep-secret"]
            case "rekey": [place.vault, "--yes"]
            default: [place.vault]
            }
        let result = try place.run(command + arguments + ["--passfile", wrong])
        #expect(result.exitCode == 1, "\(result)")
        #expect(
            result.errors.hasSuffix("takes too long: name the slot with --slot, or try all with --allow-costly\n"),
            "\(result)")
        #expect(result.errors.contains("slots 100, 101, 102, 103, 104, 105, 106, 107 and 52 more"), "\(result)")
    }

    @Test("a slot that is named is tried alone")
    func slotThatIsNamed() throws {
        #expect(try place.opens(place.opening + ["--slot", "1"]))
        #expect(try place.opens(place.opening + ["--allow-costly"]))
        let recovery = try place.run(["verify", place.vault] + place.opening + ["--slot", "2"])
        let missing = try place.run(["verify", place.vault] + place.opening + ["--slot", "77"])
        for (result, id) in [(recovery, 2), (missing, 77)] {
            #expect(result.exitCode == 2, "\(result)")
            let words = "slot \(id) does not exist or takes no passphrase; those that do: 1\n"
            #expect(result.errors.hasSuffix(words), "\(result)")
        }
        let both = try place.run(["verify", place.vault] + place.opening + ["--slot", "1", "--allow-costly"])
        #expect(both.exitCode == 2, "\(both)")
    }
}
