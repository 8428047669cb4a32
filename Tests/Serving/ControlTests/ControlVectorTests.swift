import Foundation
import TestSupport
import Testing

@testable import Control

/// Recorded conversations with the daemons of all releases. A client of this version must read every answer, and a
/// daemon of this version must take every request. Vectors/README.md describes how to record one.
@Suite struct ControlVectorTests {
    /// A recorded request and its answers: several for `events`.
    struct Exchange: Sendable, CustomTestStringConvertible {
        let file: String
        let request: String
        var answers: [String] = []

        var testDescription: String { "\(file): \(request)" }

        /// The request as a daemon reads it. Nil for one unknown to all daemons.
        var parsed: ControlRequest? {
            get throws {
                try Array(request.utf8).withUnsafeBytes { line in
                    do throws(ControlFailure) { return try ControlRequest.parse(line) } catch {
                        guard error.code == .unknownRequest else { throw error }
                        return nil
                    }
                }
            }
        }
    }

    static let folder = "\(Products.support)/Vectors"

    static let files =
        (try? FileManager.default.contentsOfDirectory(atPath: folder))?
        .filter { $0.hasPrefix("control-") }.sorted() ?? []

    static let exchanges: [Exchange] = files.flatMap { file in
        var exchanges: [Exchange] = []
        let text = (try? String(contentsOfFile: "\(folder)/\(file)", encoding: .utf8)) ?? ""
        for line in text.split(separator: "\n") {
            if line.hasPrefix("> ") {
                exchanges.append(Exchange(file: file, request: String(line.dropFirst(2))))
            } else if line.hasPrefix("< "), !exchanges.isEmpty {
                exchanges[exchanges.count - 1].answers.append(String(line.dropFirst(2)))
            }
        }
        return exchanges
    }

    /// The members of an answer in every version (ControlSocket).
    private static let required: Set<String> = [
        "version", "pid", "vaultPath", "vaultID", "mountpoint", "state", "readOnly", "mounted", "synchronized",
        "already",
        "receipt", "complete", "unpurged", "name", "event", "time", "error",
    ]

    /// Reads an answer as a client does, and returns it in this version's form.
    private static func read(_ answer: String, to request: ControlRequest?, isFirst: Bool = true) throws -> NSDictionary
    {
        let line = Data(answer.utf8)
        if !isFirst { return try object(jsonLine(try JSONDecoder().decode(ControlEvent.self, from: line))) }
        return try object(jsonLine(try ControlResponse.parse(line, to: request ?? .status)))
    }

    private static func object(_ line: [UInt8]) throws -> NSDictionary {
        try #require(try JSONSerialization.jsonObject(with: Data(line)) as? NSDictionary)
    }

    @Test("this version has a record of its answers")
    func versionIsRecorded() throws {
        let program = try String(
            contentsOfFile: "\(Products.root)/Sources/Programs/vaultfs/VaultFS.swift", encoding: .utf8)
        let version = try #require(program.firstMatch(of: /static let version = "(.+)"/)).1
        #expect(Self.files.contains("control-\(version).txt"))
        let kinds = Set(Self.exchanges.compactMap { try? $0.parsed?.name })
        #expect(kinds == ["status", "sync", "lock", "unlock", "events"])
    }

    @Test("a recorded answer is read whole: no member is lost or renamed", arguments: exchanges)
    func answersAreReadWhole(_ exchange: Exchange) throws {
        let request = try exchange.parsed
        #expect(!exchange.answers.isEmpty)
        for (index, answer) in exchange.answers.enumerated() {
            #expect(try Self.read(answer, to: request, isFirst: index == 0) == Self.object(Array(answer.utf8)))
        }
    }

    @Test(
        "an answer without a member is read, unless the page says that the member is always there", arguments: exchanges
    )
    func membersMayBeMissing(_ exchange: Exchange) throws {
        let request = try exchange.parsed
        for (index, answer) in exchange.answers.enumerated() {
            let whole = try JSONSerialization.jsonObject(with: Data(answer.utf8))
            for (name, changed) in Self.changes(of: whole, object: Self.withoutEach) where !Self.required.contains(name)
            {
                let text = String(decoding: try JSONSerialization.data(withJSONObject: changed), as: UTF8.self)
                #expect(throws: Never.self, "without \(name): \(text)") {
                    try Self.read(text, to: request, isFirst: index == 0)
                }
            }
        }
    }

    @Test("an answer with members and constants of a later version is read", arguments: exchanges)
    func laterVersions(_ exchange: Exchange) throws {
        let request = try exchange.parsed
        let constants: Set<String> = [
            "state", "policy", "reasons", "keys", "cache", "names", "name", "code", "classKeys",
        ]
        for (index, answer) in exchange.answers.enumerated() {
            let whole = try JSONSerialization.jsonObject(with: Data(answer.utf8))
            let changes = Self.changes(of: whole) { object in
                [("more", object.merging(["ofTomorrow": ["a": 1]]) { $1 })]
                    + object.compactMap { name, value in
                        guard constants.contains(name) else { return nil }
                        let later: Any = value is String ? "of-tomorrow" : ["of-tomorrow"]
                        return (name, object.merging([name: later]) { $1 })
                    }
            }
            for (name, changed) in changes {
                let text = String(decoding: try JSONSerialization.data(withJSONObject: changed), as: UTF8.self)
                #expect(throws: Never.self, "\(name): \(text)") {
                    try Self.read(text, to: request, isFirst: index == 0)
                }
            }
        }
    }

    private static func withoutEach(_ object: [String: Any]) -> [(String, [String: Any])] {
        object.keys.map { name in (name, object.filter { $0.key != name }) }
    }

    /// Returns copies of a value, each with one object at any depth changed by `change`, and a name for the change.
    private static func changes(
        of value: Any, object change: ([String: Any]) -> [(String, [String: Any])]
    ) -> [(name: String, value: Any)] {
        if let list = value as? [Any] {
            return list.indices.flatMap { index in
                changes(of: list[index], object: change).map { name, changed in
                    (name, list.enumerated().map { $0 == index ? changed : $1 })
                }
            }
        }
        guard let object = value as? [String: Any] else { return [] }
        let inside = object.flatMap { key, member in
            changes(of: member, object: change).map { name, changed in
                (name, object.merging([key: changed]) { $1 } as Any)
            }
        }
        return change(object).map { ($0, $1 as Any) } + inside
    }
}
