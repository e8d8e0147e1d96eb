/** A view that is loaded when it is shown first. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure } from "./parts.tsx";

interface Props<P> {
  load: () => Promise<{ default: ComponentType<P> }>;
  props: P;
}

export function Loaded<P extends object>({ load, props }: Props<P>) {
  const [View, setView] = useState<{ component: ComponentType<P> } | null>(null);
  const [error, setError] = useState<unknown>(undefined);
  const start = (): void => {
    setError(undefined);
    load().then((module) => setView({ component: module.default }), setError);
  };
  useEffect(start, []);
  if (error !== undefined) return <Failure error={error} retry={start} />;
  return View && <View.component {...props} />;
}
