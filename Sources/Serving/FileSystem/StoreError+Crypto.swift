package import LinuxSystem
package import VaultCrypto

extension StoreError {
    package init(_ error: CryptoError) {
        switch error {
        case .doesNotAuthenticate: self = .damaged("its data is damaged")
        case .library(let operation): self = .crypto("\(operation) failed")
        case .invalidInput(let reason): self = .crypto(reason)
        case .keyForgotten: self = .locked
        }
    }
}
