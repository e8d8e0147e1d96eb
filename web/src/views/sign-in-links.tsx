/** Creates links that sign another browser in. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { send } from "../api/client.ts";
import { duration } from "../lib/time.ts";
import { attempt } from "../ui/dialogs.tsx";
import { Button, CommandLine, Copy, useNow } from "../ui/parts.tsx";

interface SignInLink {
  address: string;
  expires: number;
}

export function SignInLinks() {
  const [link, setLink] = useState<SignInLink | null>(null);
  const create = async (): Promise<void> => {
    const made = await attempt("Couldn't create a sign-in link.", () =>
      send<{ url: string; expires_in_s: number }>("POST", "/api/login-links"),
    );
    if (!made) return;
    const { pathname, search } = new URL(made.url, location.origin);
    // Under the address that this browser uses for the server.
    setLink({
      address: `${location.origin}${pathname}${search}`,
      expires: Date.now() + made.expires_in_s * 1000,
    });
  };
  return (
    <>
      {link && <CreatedLink link={link} />}
      <Button tone={link ? "plain" : "main"} onClick={create}>
        {link ? "Create another link" : "Create a sign-in link"}
      </Button>
      <p class="quiet-text">Or run this command on the server's machine:</p>
      <CommandLine text="stead login" />
    </>
  );
}

function CreatedLink({ link: { address, expires } }: { link: SignInLink }) {
  const field = useRef<HTMLInputElement>(null);
  const now = useNow();
  useLayoutEffect(() => field.current?.select(), [address]);
  const left = expires - now;
  return (
    <div class="share-made">
      <label class="labelled">
        <span>
          {left > 0
            ? `Open it in the other browser within ${duration(Math.ceil(left / 1000) * 1000)}. It works once.`
            : "This link has expired."}
        </span>
        <span class="share-link">
          <input ref={field} readOnly value={address} onFocus={(event) => event.currentTarget.select()} />
          <Copy text={address} label="Copy the sign-in link" />
        </span>
      </label>
    </div>
  );
}
