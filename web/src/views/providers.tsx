/** The providers of compute: which can be used, what they can do, and what the others need first. */

import { list } from "../api/client.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Provider } from "../api/types.ts";
import { capabilitiesOf, missingText, setUpCommand } from "../lib/provider.ts";
import { Badge, CommandLine, Failure } from "../ui/parts.tsx";

export function useProviders(): Resource<Provider[]> {
  return useResource<Provider[]>(
    "providers",
    () => list<Provider>("/api/providers"),
    () => false,
  );
}

/** Those that can be used come first, the default one before the others. */
const order = (provider: Provider): number =>
  Number(provider.default !== true) + 2 * Number(provider.available === false);

export function ProviderList() {
  const providers = useProviders();
  if (providers.error !== undefined) return <Failure error={providers.error} retry={providers.refresh} />;
  const all = [...(providers.value ?? [])].sort((a, b) => order(a) - order(b));
  return (
    <ul class="providers">
      {all.map((provider) => (
        <ProviderRow key={provider.name} provider={provider} />
      ))}
    </ul>
  );
}

function ProviderRow({ provider }: { provider: Provider }) {
  const usable = provider.available !== false;
  const capabilities = capabilitiesOf(provider);
  const missing = provider.missing ?? [];
  const command = missing.map(setUpCommand).find((one) => one !== null);
  return (
    <li>
      <span class="provider-head">
        <h3>{provider.name}</h3>
        <Badge tone={usable ? "good" : "quiet"}>{usable ? "available" : "not available"}</Badge>
        {provider.default === true && <span class="tag">default</span>}
      </span>
      {missing.length > 0 && (
        <p class="quiet-text" title={missing.join("; ")}>
          {missing.map(missingText).join(" ")}
        </p>
      )}
      {command && <CommandLine text={command} />}
      {usable && capabilities.length > 0 && <p class="quiet-text">{capabilities.join(" · ")}</p>}
    </li>
  );
}
