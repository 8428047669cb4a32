import StrictJSON
import Testing

/// Members of one object. The tests of `vaultfs.json` cover the format's rules.
@Suite struct JSONMembersTests {
    private struct Failure: JSONFailure, Equatable {
        let reason: String

        init(malformed reason: String) { self.reason = reason }
    }

    private func parse(_ text: String) throws(Failure) -> JSONMembers<Failure> {
        try JSONMembers(parsing: Array(text.utf8), context: "x.json", maximumSize: 100)
    }

    private func reason(_ body: () throws(Failure) -> Void) -> String? {
        do throws(Failure) { try body() } catch { return error.reason }
        return nil
    }

    @Test("Each member is taken once, as its type")
    func taking() throws {
        var members = try parse(
            #" {"a": "\u0062\ud83d\ude00\n", "n": 18446744073709551615, "l": [1, null, true], "r": 7} "#)
        #expect(try members.removeString("a") == Array("b😀\n".utf8))
        #expect(try members.removeInteger("n") == .max)
        #expect(try members.removeArray("l") == [.integer(1), .null, .boolean(true)])
        #expect(reason { () throws(Failure) in try members.refuseRest() } == "x.json: unknown key 'r'")
        #expect(members.peek("r") == .integer(7))
        #expect(try members.removeInteger("r", in: 7...9) == 7)
        try members.refuseRest()
        #expect(reason { () throws(Failure) in _ = try members.remove("r") } == "x.json: no r")
    }

    @Test(
        "A value of another type or out of its range is named",
        arguments: [("\"1\"", "n is not an integer"), ("6", "n 6 is not in 7…9"), ("10", "n 10 is not in 7…9")])
    func wrongValues(value: String, text: String) throws {
        var members = try parse("{\"n\": \(value)}")
        #expect(reason { () throws(Failure) in _ = try members.removeInteger("n", in: 7...9) } == "x.json: \(text)")
    }

    @Test(
        "A syntax error is named with its byte",
        arguments: [
            ("[]", "not an object"), ("{\"a\": 01}", "byte 6: a zero leads an integer"),
            ("{\"a\": 1.0}", "byte 7: a number that is not written as an integer"),
            ("{\"a\": 1, \"a\": 1}", "byte 9: duplicate member 'a'"),
            ("{\"a\": 1,}", "byte 8: a member name in quotes is missing here"),
            ("{} x", "byte 3: something follows the end"),
            ("{\"a\": \"\\ud800\"}", "byte 13: half a surrogate pair"),
            ("{\"a\": " + String(repeating: " ", count: 100), "106 bytes are more than 100"),
        ])
    func syntax(text: String, reason expected: String) {
        #expect(reason { () throws(Failure) in _ = try parse(text) } == "x.json: \(expected)")
    }
}
